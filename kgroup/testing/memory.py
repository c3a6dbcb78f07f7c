"""A group without sockets, threads and real time: for tests of groups in one event loop."""

from __future__ import annotations

import random

from kgroup.broker.admin import BrokerAdmin
from kgroup.clocks import TrioClock
from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError
from kgroup.records.memory import MemorySource
from kgroup.runtime import Runtime
from kgroup.worker_thread import compute_inline


def memory_runtime(broker: BrokerAdmin, *, seed: int = 0) -> Runtime:
    """The runtime of a `ConsumerGroup` for one or several brokers in memory.

    Connections are memory streams, records are read from the broker's log, and the only clock
    is trio's, so that a MockClock controls all time.

    Args:
        broker: from ``kgroup.broker.in_memory`` or ``in_memory_cluster``, in the same event loop. A
            group of another event loop, as those of ``kgroup.threaded`` and ``kgroup.aio`` are,
            fails with a UsageError: it needs ``kgroup.testing.embedded.EmbeddedKafka``.
        seed: the seed of the jitter and every other random choice.

    Raises:
        ArgumentError: ``broker`` is something else, such as an ``EmbeddedKafka``, whose groups need
            no runtime of their own.
    """
    given: object = broker
    if not isinstance(given, BrokerAdmin):
        raise ArgumentError(
            "broker",
            given,
            "it must be what kgroup.broker.in_memory or in_memory_cluster yields; a group of the"
            " brokers of an EmbeddedKafka, or of Apache Kafka, is made without runtime=",
        )
    return Runtime(
        open_stream=broker.open_stream,
        clock=TrioClock(),
        random=random.Random(seed),
        record_source=lambda config, on_fault: MemorySource(config, on_fault, broker.log),
        compute=lambda: compute_inline,
    )


def config_for(broker: BrokerAdmin, **settings: object) -> GroupConfig:
    """A configuration for brokers in memory: group ``group``, topic ``topic`` by default."""
    given: dict[str, object] = {
        "group_id": "group",
        "bootstrap_servers": broker.bootstrap_servers,
        "topics": ["topic"],
    }
    return GroupConfig(**{**given, **settings})  # type: ignore[arg-type]
