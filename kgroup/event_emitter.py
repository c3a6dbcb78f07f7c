"""Emits the events of one member: fills in group, member and generation, and calls the handlers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, final

from kgroup.client.error_policy import Reaction, Request
from kgroup.errors import BrokerError, TransportError
from kgroup.events import Event, EventHandler, RecordSourceFailed, RequestFailed
from kgroup.monitors import Monitors
from kgroup.types import Membership, TopicPartition

E = TypeVar("E", bound=Event)


@final
class EventEmitter:
    """Emits the events of one member to its handlers, and passes batches to its monitors."""

    def __init__(self, group_id: str, *handlers: EventHandler) -> None:
        self._group_id = group_id
        self._handlers = Monitors(*handlers)
        self.monitored = self._handlers.monitored
        self.attach = self._handlers.attach
        self.handed_out = partial(self._handlers.handed_out, group_id)
        self.processed = partial(self._handlers.processed, group_id)
        self.pass_on: EventHandler = self._handlers
        """Calls the handlers with an event; no exception of a handler is raised."""
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
        """Make an event of a class and call the handlers; raises as `make` does."""
        self.pass_on(self.make(kind, **fields))

    def make(self, kind: Callable[..., E], **fields: Any) -> E:
        """Make an event of a class, in any thread.

        Raises:
            TypeError: the class has other fields.
        """
        return kind(group_id=self._group_id, **self._subject, **fields)

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
