"""The runtime of a group: its network, clock, random numbers and records, which tests can replace.

Most programs do not use it. A group that gets no runtime uses that of `default_runtime_factory`, so
that the simulator can run programs that create their groups themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, final

import attrs

from kgroup import bounds
from kgroup.config import GroupConfig
from kgroup.events import Event
from kgroup.interfaces import Batch, Clock, Compute, Random, RecordSource, StreamOpener
from kgroup.types import Membership, TopicPartition


class Observer(Protocol):
    """Observes a member for tests and the simulator; it must neither block nor change anything."""

    def opened(self, shutdown: Callable[[str], None]) -> None:
        """A program entered a group; ``shutdown`` is the group's `ConsumerGroup.shutdown`."""
        ...

    def event(self, event: Event) -> None:
        """An event was emitted."""
        ...

    def handed_out(self, membership: Membership, batch: Batch) -> None:
        """A record stream is about to return a batch to a handler."""
        ...

    def sought(self, membership: Membership, partition: TopicPartition, offset: int) -> None:
        """The program called `Generation.seek`, or ``GroupConfig.starts`` gave this start."""
        ...


def _having(*methods: str) -> bounds.Bound:
    """An object with these methods; it is refused, too, if reading one of them raises."""
    return bounds.Bound(
        lambda value: all(callable(getattr(value, name)) for name in methods),
        f"it must be an object with {', '.join(f'{name}()' for name in methods)}",
    )


_CALLABLE: Final = bounds.function()


@final
@attrs.frozen(kw_only=True)
class Runtime:
    """The dependencies of a group: the network, the clock, random numbers and records.

    The default is TCP, the system's clock and librdkafka; tests use memory and virtual time.

    Attributes:
        open_stream: opens the connections of the control plane.
        clock: measures leases; it counts suspended time.
        random: gives jitter, and the order in which brokers are tried.
        record_source: makes the data plane. The source calls its second argument for each fault
            from which it recovers by itself, with the partition, or None, and the reason. After one
            without a partition the member requests the brokers' addresses again.
        wall_clock: a time on which all members of a group agree as well as they can: at its
            round values they send their heartbeats together. None means ``clock``, on which the
            members of one process agree.
        compute: makes what runs long computations: a `WorkerThread`, or `compute_inline` if the
            clock is virtual.
        observer: gets the events in place of the log; or None.

    Raises:
        ConfigError: a part cannot be called or lacks a method; the error names it.
    """

    open_stream: StreamOpener = attrs.field(validator=_CALLABLE)
    clock: Clock = attrs.field(validator=_having("now"))
    random: Random = attrs.field(validator=_having("random"))
    record_source: Callable[
        [GroupConfig, Callable[[TopicPartition | None, str], None]], RecordSource
    ] = attrs.field(validator=_CALLABLE)
    compute: Callable[[], Compute] = attrs.field(validator=_CALLABLE)
    wall_clock: Clock | None = attrs.field(default=None, validator=bounds.optional(_having("now")))
    observer: Observer | None = attrs.field(
        default=None, validator=bounds.optional(_having("opened", "event", "handed_out", "sought"))
    )


default_runtime_factory: Final[ContextVar[Callable[[], Runtime] | None]] = ContextVar(
    "kgroup_default_runtime_factory", default=None
)
"""Makes the runtime of each group that gets none; None means TCP, system clock and librdkafka."""
