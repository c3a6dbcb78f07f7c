"""Emits the events of one member: fills in group, member and generation, and calls the handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from kgroup.client.error_policy import Reaction, Request
from kgroup.errors import BrokerError, TransportError
from kgroup.events import Event, EventHandler, RecordSourceFailed, RequestFailed
from kgroup.logs import LOGGER, attributes_of
from kgroup.monitors import Monitor, Monitored
from kgroup.types import Membership, TopicPartition

E = TypeVar("E", bound=Event)


@final
class EventHandlers:
    """Calls each handler with each event.

    INVARIANT: no exception of a handler leaves it, not even the SystemExit of ``sys.exit()``.
    Events are emitted in the middle of commits, at a generation's end, and in callbacks that trio
    itself runs, where any exception would end the event loop. The first exception of each handler
    is logged with its traceback. Only a KeyboardInterrupt is passed on: trio does not let Ctrl-C
    raise one in its own callbacks.
    """

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = handlers
        self._monitors = [one for one in handlers if isinstance(one, Monitor)]
        self._raised: set[int] = set()
        """The ids of the handlers that have raised; a handler need not be hashable."""

    @property
    def monitored(self) -> bool:
        """Whether there is a monitor."""
        return bool(self._monitors)

    def __call__(self, event: Event) -> None:
        """Call the handlers in order."""
        for handler in self._handlers:
            try:
                handler(event)
            except BaseException as error:  # noqa: BLE001 # whatever a program does wrong in it
                self._failed(handler, event, error)

    def attach(self, group: Monitored) -> None:
        """Pass the group to the monitors among the handlers."""
        for monitor in self._monitors:
            try:
                monitor.attach(group)
            except BaseException as error:  # noqa: BLE001 # as above
                self._failed(monitor, group, error)

    def handed_out(self, partition: TopicPartition, records: int) -> None:
        """Report a batch to the monitors; any thread may call it."""
        for monitor in self._monitors:
            try:
                monitor.handed_out(self._group_id, partition, records)
            except BaseException as error:  # noqa: BLE001 # as above
                self._failed(monitor, partition, error)

    def processed(self, partition: TopicPartition, records: int, seconds: float) -> None:
        """Report the end of a batch to the monitors; any thread may call it."""
        for monitor in self._monitors:
            try:
                monitor.processed(self._group_id, partition, records, seconds)
            except BaseException as error:  # noqa: BLE001 # as above
                self._failed(monitor, partition, error)

    def _failed(self, handler: EventHandler, subject: object, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise error
        if id(handler) not in self._raised:
            self._raised.add(id(handler))
            LOGGER.error(
                "the event handler %r of group %r raised an exception for %r; the group"
                " continues, and later exceptions of this handler are not logged",
                handler,
                self._group_id,
                subject,
                exc_info=error,
                extra=attributes_of(subject) if isinstance(subject, Event) else None,
            )


@final
class EventEmitter:
    """Emits the events of one member to its handlers, and passes batches to its monitors."""

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = EventHandlers(group_id, *handlers)
        self.monitored = self._handlers.monitored
        self.attach = self._handlers.attach
        self.handed_out = self._handlers.handed_out
        self.processed = self._handlers.processed
        self._subject: dict[str, Any] = {}

    def bind(self, membership: Membership | None, member_id: str = "") -> None:
        """Set the member and generation of later events; a member may have no membership yet."""
        if membership is None:
            self._subject = {"member_id": member_id}
        else:
            self._subject = {
                "member_id": membership.member_id,
                "generation_id": membership.generation_id,
                "epoch": membership.epoch,
            }

    def emit(self, kind: Callable[..., E], **fields: Any) -> None:
        """Make an event of a class and call the handlers; no exception of a handler is raised."""
        self._handlers(kind(group_id=self._group_id, **self._subject, **fields))

    def failed(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        """Emit that a request failed, and what kgroup does about it."""
        self.emit(
            RequestFailed, request=request.value, reason=str(error), next_action=str(reaction)
        )

    def fault(self, partition: TopicPartition | None, reason: str) -> None:
        """Emit that the record source had a fault from which it recovers by itself."""
        self.emit(RecordSourceFailed, partition=partition, reason=reason)
