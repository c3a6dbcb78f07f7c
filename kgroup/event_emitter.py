"""Emits the events of one member: fills in group, member and generation, and calls the handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from kgroup.client.error_policy import Reaction, Request
from kgroup.errors import BrokerError, TransportError
from kgroup.events import Event, EventHandler, RequestFailed, SourceFault
from kgroup.logs import LOGGER, attributes_of
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
        self._raised: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Call the handlers in order."""
        for number, handler in enumerate(self._handlers):
            try:
                handler(event)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 # whatever a program does wrong in it
                if number not in self._raised:
                    self._raised.add(number)
                    LOGGER.exception(
                        "the event handler %r of group %r raised an exception for %r; the group"
                        " continues, and later exceptions of this handler are not logged",
                        handler,
                        self._group_id,
                        event,
                        extra=attributes_of(event),
                    )


@final
class EventEmitter:
    """Emits the events of one member to its handlers."""

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = EventHandlers(group_id, *handlers)
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
        self.emit(SourceFault, partition=partition, reason=reason)
