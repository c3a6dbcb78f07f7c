"""Turns what happens to one member into events, with whom it happened to filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from kgroup.errors import BrokerError, TransportError
from kgroup.events import Event, EventHandler, RequestFailed, SourceFault
from kgroup.model import Membership, TopicPartition
from kgroup.recovery import Move, Request

E = TypeVar("E", bound=Event)


@final
class Reporter:
    """Makes events for one member and hands them to everybody who listens."""

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = handlers
        self._who: dict[str, Any] = {}

    def about(self, membership: Membership | None, member_id: str = "") -> None:
        """From now on events are about this membership, or about a member without one."""
        if membership is None:
            self._who = {"member_id": member_id}
        else:
            self._who = {
                "member_id": membership.member_id,
                "generation_id": membership.generation_id,
                "epoch": membership.epoch,
            }

    def tell(self, kind: Callable[..., E], **fields: Any) -> None:
        """Make an event and hand it on."""
        event = kind(group_id=self._group_id, **self._who, **fields)
        for handler in self._handlers:
            handler(event)

    def failed(self, request: Request, error: BrokerError | TransportError, move: Move) -> None:
        """A request failed, and this follows."""
        self.tell(RequestFailed, request=request.value, reason=str(error), next_move=str(move))

    def fault(self, partition: TopicPartition | None, reason: str) -> None:
        """Reading had a fault that the source waits out."""
        self.tell(SourceFault, partition=partition, reason=reason)
