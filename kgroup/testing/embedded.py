"""The embedded broker for programs and tests without an event loop, in a thread of its own.

Any Kafka client can talk to it, in this process or another. It keeps nothing on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Self, TypeVar, final

import trio

from kgroup.broker import BrokerSettings, EmbeddedCluster, NewRecord, serve_cluster
from kgroup.errors import UsageError
from kgroup.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": 0}
"""By default a test's group does not wait for further members."""


@final
class EmbeddedKafka:
    """A cluster of embedded brokers on TCP ports, as a context manager.

    All methods block and may be called from any thread but the broker's own.

    Args:
        settings: Kafka's property names with their values, or ``BrokerSettings``. Without any,
            a group starts without the initial rebalance delay.
        brokers: the number of brokers.

    Raises (from ``with``):
        ConfigError: a property is unknown or its value is not allowed.
        OSError: a port cannot be opened.
    """

    def __init__(
        self,
        settings: BrokerSettings | Mapping[str, object] | None = None,
        *,
        brokers: int = 1,
    ) -> None:
        self._settings = _NO_DELAY if settings is None else settings
        self._brokers = brokers
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kgroup-embedded-kafka")
        self._token: trio.lowlevel.TrioToken | None = None
        self._stopped: trio.Event | None = None
        self._cluster: EmbeddedCluster | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, *details: object) -> None:
        if self._token is not None and self._stopped is not None:
            trio.from_thread.run_sync(self._stopped.set, trio_token=self._token)
        self._thread.join()
        self._token = self._cluster = None

    def __repr__(self) -> str:
        where = "not running" if self._cluster is None else self._cluster.bootstrap_servers
        return f"<EmbeddedKafka, {where}>"

    @property
    def cluster(self) -> EmbeddedCluster:
        """The cluster; its async methods can be passed to `call`.

        Raises:
            UsageError: it does not run.
        """
        if self._cluster is None:
            raise UsageError("the embedded Kafka does not run; use it as `with EmbeddedKafka():`")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's ``bootstrap.servers``."""
        return self.cluster.bootstrap_servers

    def call(self, fn: Callable[..., Awaitable[T]], *args: object, **named: object) -> T:
        """Call an async method of the cluster, or of one of its brokers, in the brokers' thread.

        For example ``kafka.call(kafka.cluster.move_coordinator, "group", 2)``.

        Raises:
            UsageError: it does not run.
        """
        if self._token is None:
            raise UsageError("the embedded Kafka does not run; use it as `with EmbeddedKafka():`")
        return trio.from_thread.run(partial(fn, *args, **named), trio_token=self._token)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; see ``EmbeddedCluster.create_topic``."""
        self.call(self.cluster.create_topic, name, partitions)

    def append(self, topic: str, partition: int, records: Sequence[bytes | NewRecord]) -> int:
        """Write records as one batch; returns the offset of the first."""
        return self.call(self.cluster.append, topic, partition, records)

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; empty for an unknown group."""
        return self.call(self.cluster.committed, group_id)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 # raised in the thread that entered the context
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with serve_cluster(brokers=self._brokers, settings=self._settings) as cluster:
            self._cluster = cluster
            self._stopped = trio.Event()
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await self._stopped.wait()
