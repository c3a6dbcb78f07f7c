"""Turns what happens to one member into events, with whom it happened to filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from kgroup.client.error_policy import Reaction, Request
from kgroup.errors import BrokerError, TransportError
from kgroup.events import Event, EventHandler, RequestFailed, SourceFault
from kgroup.logs import LOGGER
from kgroup.types import Membership, TopicPartition

E = TypeVar("E", bound=Event)


@final
class EventHandlers:
    """Calls each handler with each event.

    INVARIANT: no handler's exception leaves it. Events are made in the middle of commits, at a
    generation's end, and in callbacks that trio itself runs, where an exception would end the whole
    event loop. The first one of each handler is logged with its traceback.
    """

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = handlers
        self._raised: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Call them, in their order."""
        for number, handler in enumerate(self._handlers):
            try:
                handler(event)
            except Exception:  # noqa: BLE001 # whatever a program does wrong in it
                if number not in self._raised:
                    self._raised.add(number)
                    LOGGER.exception(
                        "the event handler %r of group %r raised at %r; the group goes on, and what"
                        " the handler raises again is not logged",
                        handler,
                        self._group_id,
                        event,
                    )


@final
class EventEmitter:
    """Makes events for one member and hands them to everybody who listens."""

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._hand_on = EventHandlers(group_id, *handlers)
        self._who: dict[str, Any] = {}

    def bind(self, membership: Membership | None, member_id: str = "") -> None:
        """From now on events are about this membership, or about a member without one."""
        if membership is None:
            self._who = {"member_id": member_id}
        else:
            self._who = {
                "member_id": membership.member_id,
                "generation_id": membership.generation_id,
                "epoch": membership.epoch,
            }

    def emit(self, kind: Callable[..., E], **fields: Any) -> None:
        """Make an event and hand it on; raises nothing that a handler does."""
        event = kind(group_id=self._group_id, **self._who, **fields)
        self._hand_on(event)

    def failed(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        """A request failed, and this follows."""
        self.emit(
            RequestFailed, request=request.value, reason=str(error), next_action=str(reaction)
        )

    def fault(self, partition: TopicPartition | None, reason: str) -> None:
        """Reading had a fault that the source waits out."""
        self.emit(SourceFault, partition=partition, reason=reason)
