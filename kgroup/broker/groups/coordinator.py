"""The door to the coordinator: every request and timer of one broker's groups comes in here.

Signature first; the machine behind it is being built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import final

from kgroup.broker.groups.answers import Answer
from kgroup.broker.groups.requests import Request, Ticket
from kgroup.broker.groups.settings import CoordinatorSettings
from kgroup.model import TopicPartition


@final
class Coordinator:
    """All groups of one broker. Not for use by two tasks at once; no method waits.

    Times are float seconds of one clock that never goes back; ``now`` of any call must not be
    before that of the call before. Every list of answers is in the order in which Kafka gives
    them; each ticket is answered at most once.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_id: Callable[[], str],
        topics: Callable[[str], int | None],
        *,
        shards: Collection[int] | None = None,
    ) -> None:
        """Make a coordinator of empty shards.

        Args:
            settings: see ``CoordinatorSettings``.
            new_id: gives the UUID text that ends a new member id.
            topics: the number of partitions of a topic, or None for an unknown one.
            shards: the partitions of the offsets topic that this broker leads; None for all.
        """
        raise NotImplementedError

    def handle(self, now: float, request: Request, ticket: Ticket) -> list[Answer]:
        """Take a request in; its own answer may be among those returned, or be parked."""
        raise NotImplementedError

    def expire(self, now: float) -> list[Answer]:
        """Run every timer that is due, in order of its time."""
        raise NotImplementedError

    @property
    def next_timer(self) -> float | None:
        """When ``expire`` must be called next, or None. It changes with every call."""
        raise NotImplementedError

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        raise NotImplementedError

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets become committed or vanish."""
        raise NotImplementedError
