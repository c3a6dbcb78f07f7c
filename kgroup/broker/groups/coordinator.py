"""The coordinator's entry point for every request and timer of one broker's groups.

The server checks the transaction that a TxnOffsetCommit belongs to, and decides which broker leads
which shard.

INVARIANT: each ticket gets at most one response. A later call responds to a parked request, or says
that Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, final

from kgroup.broker.groups import request_handling
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.record_sizes import MAX_BATCH_BYTES
from kgroup.broker.groups.records import Snapshot
from kgroup.broker.groups.registry import Registry
from kgroup.broker.groups.requests import Request, Ticket
from kgroup.broker.groups.responses import CoordinatorResponse
from kgroup.broker.groups.timers import TimerKind, TimerName
from kgroup.broker.groups.validation import Shard
from kgroup.types import TopicPartition

_RETENTION: Final = TimerName(TimerKind.RETENTION)


@final
class GroupCoordinatorService:
    """All groups of one broker. Not for use by two tasks at once; no method waits.

    Times are float seconds of one clock that never goes back: ``now`` must not be less than in the
    call before. Every list of responses is in Kafka's order. A client that disconnects changes
    nothing, as in Kafka: its parked request stays parked.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_id: Callable[[], str],
        topics: Callable[[str], int | None],
        *,
        shards: Collection[int] | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        """Make a coordinator of empty shards.

        Args:
            settings: see ``CoordinatorSettings``.
            new_id: returns the UUID, as text, that ends a new member id.
            topics: the number of partitions of a topic, or None for an unknown one.
            shards: the partitions of the offsets topic that this broker leads; None for all.
            max_batch_bytes: the largest write: a group's record, or the offsets of a commit.
        """
        self._registry = Registry(settings, new_id, topics, shards, max_batch_bytes)
        self._started = False

    # Requests and timers

    def handle(self, now: float, request: Request, ticket: Ticket) -> list[CoordinatorResponse]:
        """Handle a request; its own response may be among those returned, or come later.

        Timers that are due run first. A timer that the request sets for now is left for ``expire``.
        """
        return [*self.expire(now), *self._handle(now, request, ticket)]

    def expire(self, now: float) -> list[CoordinatorResponse]:
        """Run every timer that is due, in the order of their times.

        One that is set meanwhile is left for the next call, so that this call ends, whatever
        time-outs the members have.
        """
        self._start(now)
        timers = self._registry.timers
        among = timers.set_so_far
        responses: list[CoordinatorResponse] = []
        while (timer := timers.pop_due(now, among)) is not None:
            if timer.kind is TimerKind.RETENTION:
                self._drop_expired(now)
            else:
                responses += self._registry.machines[timer.group_id].fire(now, timer)
        return responses

    @property
    def next_timer(self) -> float | None:
        """When ``expire`` must be called next, or None. It changes with every call."""
        return self._registry.timers.next()

    # Changes from outside the groups

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of partitions that no longer exist."""
        self._registry.store.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets are committed or dropped."""
        self._registry.store.complete(producer_id, committed=committed)

    def has_transaction(self, producer_id: int, shard: int) -> bool:
        """Whether a producer's open transaction has written offsets of a shard."""
        return self._registry.store.has_written(producer_id, shard)

    def shut_down(self) -> None:
        """Answer COORDINATOR_NOT_AVAILABLE from now on. Parked requests stay unanswered."""
        self._registry.shut_down = True

    def fail_writes(self, error: int, times: int | None = 1) -> None:
        """Let the next writes to the log fail; see ``write_faults``.

        Args:
            error: what the log fails with, an ``ErrorCode`` or its number.
            times: how many writes, None for all until another call, 0 for no further one.

        Raises:
            ValueError: no write fails with this error.
        """
        self._registry.write_faults.fail(error, times)

    # Shards

    def shard_of(self, group_id: str) -> int:
        """The partition of the offsets topic that a group belongs to."""
        return self._registry.shard_of(group_id)

    def snapshot(self, shards: Collection[int] | None = None) -> Snapshot:
        """The records that another coordinator would load for these shards, all by default."""
        return self._registry.snapshot(shards)

    def unload(
        self, now: float, shards: Collection[int] | None = None
    ) -> list[CoordinatorResponse]:
        """Give up shards, all by default; parked requests in them are answered NOT_COORDINATOR."""
        return self._registry.unload(now, shards)

    def begin_loading(self, shards: Collection[int]) -> None:
        """Lead shards whose records are not loaded yet.

        Requests are answered COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._registry.begin_loading(shards)

    def load(self, now: float, snapshot: Snapshot, shards: Collection[int]) -> None:
        """Lead shards with the records of a snapshot; every member's session starts again."""
        self._start(now)
        self._registry.load(now, snapshot, shards)

    # State, for tests and simulations

    def group(self, group_id: str) -> ClassicGroup | None:
        """A group, or None. Callers must not change it."""
        return self._registry.group(group_id)

    def shard(self, group_id: str) -> Shard:
        """Whether this broker coordinates the shard of a group."""
        return self._registry.shard(group_id)

    def _handle(self, now: float, request: Request, ticket: Ticket) -> list[CoordinatorResponse]:
        kind = type(request)
        if kind in request_handling.BY_MEMBERS:
            return request_handling.of_member(self._registry, now, request, ticket)
        if kind in request_handling.READS:
            return [
                CoordinatorResponse(ticket, request_handling.READS[kind](self._registry, request))
            ]
        return [
            CoordinatorResponse(ticket, request_handling.WRITES[kind](self._registry, now, request))
        ]

    def _start(self, now: float) -> None:
        if not self._started:
            self._started = True
            self._set_retention(now)

    def _drop_expired(self, now: float) -> None:
        for group_id in list(self._registry.machines):
            self._registry.drop_expired(now, group_id)
        self._set_retention(now)

    def _set_retention(self, now: float) -> None:
        every = self._registry.settings.offsets_retention_check_interval
        self._registry.timers.set(_RETENTION, now + every)
