"""Event handlers that learn more than events: what metrics need and what would be too many events.

A `Monitor` is given to a group as ``on_event``, as any event handler is. `Monitors` makes one
handler of several, and keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, final, runtime_checkable

from kgroup import functions
from kgroup.errors import ArgumentError
from kgroup.events import Event, EventHandler
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, Health
from kgroup.logs import LOG, attributes_of
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
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """The program asks for the batch after this one, or has failed; in the thread that does.

        A failure is known of the functions of ``run`` and ``serve``, and of blocks of
        `RecordStream.processing`. A batch for which there is neither that nor a request for the
        next one, because the program stops to read, is not reported.

        Args:
            group_id: the group.
            partition: the batch's partition.
            records: the batch's records.
            seconds: the time for which the program has had it.
            error: what the program has raised for it, a cancellation too; None if it asks for more.
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
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """See `Monitor`."""


@final
class Monitors:
    """A monitor of several monitors and event handlers, each of which gets everything in turn.

    For example ``kgroup.run(config, handle, on_event=Monitors(metrics, log))``. An exception of one
    of them is kept from the others: the first one of each is logged with its traceback, and those
    behind it get that event, and every later one, all the same. A group calls its own handlers by
    this class too.

    Raises:
        ArgumentError: a handler is no function, async, or takes other parameters than an event; or
            a monitor is given twice.

    INVARIANT: no exception of a handler leaves it, not even the SystemExit of ``sys.exit()``.
    Events are emitted in the middle of commits, at a generation's end, and in callbacks that trio
    itself runs, where any exception would end the event loop. Only a KeyboardInterrupt is passed
    on: trio does not let Ctrl-C raise one in its own callbacks.

    Attributes:
        monitored: whether there is a monitor among them.
    """

    def __init__(self, *handlers: EventHandler) -> None:
        for handler in handlers:
            functions.check_event_handler("handlers", handler)
        self._handlers = handlers
        self._monitors = [handler for handler in handlers if isinstance(handler, Monitor)]
        seen: set[int] = set()
        for monitor in self._each():
            if id(monitor) in seen:
                wanted = "a monitor must be given once: it would count everything twice"
                raise ArgumentError("handlers", monitor, wanted)
            seen.add(id(monitor))
        self._raised: set[int] = set()
        """The ids of the handlers that have raised; a handler need not be hashable."""
        self.monitored = bool(self._monitors)

    def __call__(self, event: Event) -> None:
        """See `Monitor`."""
        for handler in self._handlers:
            try:
                # A lambda, for one, shows only by its result that it is async.
                returned: object = handler(event)
                functions.check_handled(handler, returned)
            except BaseException as error:  # noqa: BLE001 # whatever a program does wrong in it
                self._failed(handler, event.group_id, event, error)

    def attach(self, group: Monitored) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            try:
                monitor.attach(group)
            except BaseException as error:  # noqa: BLE001 # as above
                self._failed(monitor, group.status().group_id, group, error)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            try:
                monitor.handed_out(group_id, partition, records)
            except BaseException as error:  # noqa: BLE001 # as above
                self._failed(monitor, group_id, partition, error)

    def processed(
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """See `Monitor`."""
        for monitor in self._monitors:
            try:
                monitor.processed(group_id, partition, records, seconds, error)
            except BaseException as raised:  # noqa: BLE001 # as above
                self._failed(monitor, group_id, partition, raised)

    def _each(self) -> Iterator[Monitor]:
        """Every monitor, those inside of others too."""
        for monitor in self._monitors:
            if isinstance(monitor, Monitors):
                yield from monitor._each()  # noqa: SLF001 # of the same class
            else:
                yield monitor

    def _failed(
        self, handler: EventHandler, group_id: str, subject: object, error: BaseException
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise error
        if id(handler) not in self._raised:
            self._raised.add(id(handler))
            LOG.error(
                "the event handler %r of group %r raised an exception for %r; the group"
                " continues, and later exceptions of this handler are not logged",
                handler,
                group_id,
                subject,
                exc_info=error,
                extra=attributes_of(subject) if isinstance(subject, Event) else None,
            )
