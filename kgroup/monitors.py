"""Event handlers that learn more than events: what metrics need and what would be too many events.

A `Monitor` is given to a group as ``on_event``, as any event handler is. `Monitors` makes one
handler of several.
"""

from __future__ import annotations

from typing import Protocol, final, runtime_checkable

from kgroup.events import Event, EventHandler
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, Health
from kgroup.status import GroupStatus, Phase
from kgroup.types import TopicPartition


class Monitored(Protocol):
    """What a monitor sees of a group; any thread may call it."""

    def status(self) -> GroupStatus:
        """See `ConsumerGroup.status`."""
        ...

    def health(
        self,
        *,
        blocked_after: float | None = BLOCKED_AFTER,
        hanging_after: float | None = None,
        unconfirmed_after: float | None = None,
        stuck_after: float | None = STUCK_AFTER,
    ) -> Health:
        """See `ConsumerGroup.health`."""
        ...


@runtime_checkable
class Monitor(Protocol):
    """An event handler that also learns of groups and of batches. None of its methods may block.

    Its exceptions end nothing: the first one is logged with its traceback.
    """

    def __call__(self, event: Event) -> None:
        """Take an event, in the thread of the group's event loop."""
        ...

    def attach(self, group: Monitored) -> None:
        """A program has entered a group; in the thread of its event loop."""
        ...

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """A batch is about to be handed out; in the thread that reads it."""
        ...

    def processed(
        self, group_id: str, partition: TopicPartition, records: int, seconds: float
    ) -> None:
        """The program asks for the batch after this one; in the thread that reads it.

        A batch after which a program asks for no other one, because it fails or stops to read, is
        not reported.

        Args:
            group_id: the group.
            partition: the batch's partition.
            records: the batch's records.
            seconds: the time for which the program has had it.
        """
        ...


@final
class HealthMonitor:
    """Gives the health of the group that ``kgroup.run`` makes, which its program does not hold.

    For example ``kgroup.run(config, handle, on_event=monitor)``, and ``monitor.health()`` in the
    thread that serves the probes. It is for one group at a time.
    """

    def __init__(self) -> None:
        self._group: Monitored | None = None

    def health(
        self,
        *,
        blocked_after: float | None = BLOCKED_AFTER,
        hanging_after: float | None = None,
        unconfirmed_after: float | None = None,
        stuck_after: float | None = STUCK_AFTER,
    ) -> Health:
        """The health of the group; see `ConsumerGroup.health`. Any thread may call it.

        Raises:
            ArgumentError: an argument is not a number of seconds.
        """
        if self._group is not None:
            return self._group.health(
                blocked_after=blocked_after,
                hanging_after=hanging_after,
                unconfirmed_after=unconfirmed_after,
                stuck_after=stuck_after,
            )
        status = GroupStatus(group_id="", phase=Phase.NOT_ENTERED)
        reason = "the program has not entered a group yet"
        return Health(live=True, ready=False, reasons=(reason,), status=status)

    def __call__(self, event: Event) -> None:
        """See `Monitor`."""

    def attach(self, group: Monitored) -> None:
        """See `Monitor`."""
        self._group = group

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See `Monitor`."""

    def processed(
        self, group_id: str, partition: TopicPartition, records: int, seconds: float
    ) -> None:
        """See `Monitor`."""


@final
class Monitors:
    """A monitor of several monitors and event handlers, each of which gets everything in turn.

    For example ``kgroup.run(config, handle, on_event=Monitors(metrics, log))``. If one of them
    raises, those behind it do not get that event.
    """

    def __init__(self, *handlers: EventHandler) -> None:
        self._handlers = handlers
        self._monitors = [handler for handler in handlers if isinstance(handler, Monitor)]

    def __call__(self, event: Event) -> None:
        """See `Monitor`."""
        for handler in self._handlers:
            handler(event)

    def attach(self, group: Monitored) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.attach(group)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.handed_out(group_id, partition, records)

    def processed(
        self, group_id: str, partition: TopicPartition, records: int, seconds: float
    ) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            monitor.processed(group_id, partition, records, seconds)
