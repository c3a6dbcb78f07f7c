"""What a group stands on: everything outside of it, so that a test can put something else there.

A program need not know of it: what `default_runtime_factory` holds is used by every group that is
not given a runtime, so that a program which makes its groups itself runs in a simulation unchanged.
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
    """Looks on as a member works; it must not block, and changes nothing."""

    def opened(self, shutdown: Callable[[str], None]) -> None:
        """A group was entered; ``shutdown`` closes it as `ConsumerGroup.shutdown` does."""
        ...

    def event(self, event: Event) -> None:
        """Something has happened."""
        ...

    def handed_out(self, membership: Membership, batch: Batch) -> None:
        """A handler is about to be given a batch."""
        ...

    def sought(self, membership: Membership, partition: TopicPartition, offset: int) -> None:
        """The program has called `Generation.seek`."""
        ...


def _having(*methods: str) -> bounds.Bound:
    """An object with these methods; reading one of them may raise, which refuses the object."""
    return bounds.Bound(
        lambda value: all(callable(getattr(value, name)) for name in methods),
        f"it must be an object with {', '.join(f'{name}()' for name in methods)}",
    )


_CALLABLE: Final = bounds.function()


@final
@attrs.frozen(kw_only=True)
class Runtime:
    """What a group stands on: the network, the clock, chance, and where records come from.

    The default is TCP, the system's clock and librdkafka; tests put memory and virtual time in
    their place.

    Attributes:
        open_stream: opens connections of the control plane.
        clock: measures leases; it counts suspended time.
        random: jitter and the order in which brokers are asked.
        record_source: makes the data plane; its second argument is told of faults that the
            source waits out: the partition, if it is about one, and what happened.
        compute: makes what computes a member's assignments: a thread, or nothing of the kind
            where the clock is virtual.
        observer: looks on, and is told of events in the log's place; or None.

    Raises:
        ConfigError: a part cannot be called, or lacks a method; it is named.
    """

    open_stream: StreamOpener = attrs.field(validator=_CALLABLE)
    clock: Clock = attrs.field(validator=_having("now"))
    random: Random = attrs.field(validator=_having("random"))
    record_source: Callable[
        [GroupConfig, Callable[[TopicPartition | None, str], None]], RecordSource
    ] = attrs.field(validator=_CALLABLE)
    compute: Callable[[], Compute] = attrs.field(validator=_CALLABLE)
    observer: Observer | None = attrs.field(
        default=None, validator=bounds.optional(_having("opened", "event", "handed_out", "sought"))
    )


default_runtime_factory: Final[ContextVar[Callable[[], Runtime] | None]] = ContextVar(
    "kgroup_surroundings", default=None
)
"""Makes the runtime of each group that is given none; None is the real world."""
