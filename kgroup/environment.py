"""What a group stands on: everything outside of it, so that a test can put something else there."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from kgroup.config import GroupConfig
from kgroup.model import TopicPartition
from kgroup.protocols import Clock, Random, RecordSource, StreamOpener


@final
@attrs.frozen(kw_only=True)
class Environment:
    """What a group stands on: the network, the clock, chance, and where records come from.

    The default is TCP, the system's clock and librdkafka; tests put memory and virtual time in
    their place.

    Attributes:
        open_stream: opens connections of the control plane.
        clock: measures leases; it counts suspended time.
        random: jitter and the order in which brokers are asked.
        record_source: makes the data plane; its second argument is told of faults that the
            source waits out: the partition, if it is about one, and what happened.
    """

    open_stream: StreamOpener
    clock: Clock
    random: Random
    record_source: Callable[
        [GroupConfig, Callable[[TopicPartition | None, str], None]], RecordSource
    ]
