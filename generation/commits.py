"""Commits of one generation: one request at a time, those that wait go out together.

Each caller gets its own answer, for its own partitions. Nothing is ever stamped with another
generation than the one the commit was made in.

Outcome under cancellation. INVARIANT: from the moment that a request takes a caller's offsets
along, that caller is shielded until the outcome is known, or until the deadline. Before that, a
cancelled caller takes its offsets back and nothing of them is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, final

import attrs
import trio
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kgroup.client.error_policy import Action, Request, broker_error, reaction_for
from kgroup.errors import (
    CommitUnknownError,
    LeaseExpiredError,
    OffsetBehindFloorError,
    StaleGenerationError,
)
from kgroup.generation.commit_request import (
    CommitContext,
    CommitRequest,
    Positions,
    numbers,
    stale_error,
    unknown_error,
)
from kgroup.types import Cause, End, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer


import struct
from functools import cache
from typing import Final

from confluent_kafka import Consumer

from kgroup.errors import UsageError
from kgroup.types import Membership


@final
@attrs.define(eq=False)
class _Entry:
    """One caller's commit."""

    offsets: Positions
    moves: Mapping[TopicPartition, int]
    taken: bool = False
    done: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


@final
class Committer:
    """Sends the commits of one generation."""

    def __init__(self, setting: CommitContext) -> None:
        self._setting = setting
        self._waiting: list[_Entry] = []
        self._turn = trio.StrictFIFOLock()
        self._changed = trio.Event()
        self._over: End | None = None
        self._latest = float("inf")
        self._scopes: set[trio.CancelScope] = set()
        self._attempt: CommitRequest | None = None
        self.unanswered = False
        """Whether the coordinator may yet receive a commit of this generation."""

    def bound(self, deadline: float) -> None:
        """From now on no commit outlasts this time of trio's clock."""
        self._latest = min(self._latest, deadline)
        for scope in self._scopes:
            scope.deadline = min(scope.deadline, self._latest)

    def stop(self, end: End) -> None:
        """The generation has ended: what has not been sent is refused."""
        self._over = end
        if self._attempt is not None:
            self._attempt.stop(self._stale(end))
        self.wake()

    def wake(self) -> None:
        """The lease was confirmed, or the generation is over: look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def lease_confirmed(self) -> None:
        """Wait until the lease is valid, or the generation is over."""
        while self._setting.lease.left <= 0 and self._over is None:
            await self._changed.wait()

    async def commit(self, offsets: Positions) -> None:
        """Send these offsets, which were checked, and wait for their outcome."""
        entry = _Entry(offsets, self._setting.floors.moves(offsets))
        self._waiting.append(entry)
        try:
            async with self._turn:
                if not entry.done.is_set():
                    await self._send_waiting()
        except trio.Cancelled:
            if not entry.taken:
                self._waiting.remove(entry)
                raise
            await self._outcome_of_anothers_request(entry)
        if entry.error is not None:
            raise entry.error

    async def commit_in_transaction(self, producer: Producer, offsets: Positions) -> None:
        """Hand these offsets, which were checked, to the producer's open transaction."""
        setting = self._setting
        await trio.lowlevel.checkpoint()
        if await self._lease_is_over() and self._over is None:
            raise _lease_error(setting)
        if self._over is not None:
            raise self._stale(self._over)
        answered = False
        with self._shielded() as scope:
            try:
                await self._hand_to(producer, offsets, scope.deadline - trio.current_time())
            except KafkaException as error:
                if (stale := self._refusal(error, offsets)) is None:
                    raise
                raise stale from error
            answered = True
        if answered:
            setting.committed(numbers(offsets))
            return
        setting.refused(numbers(offsets), "the producer did not answer in time", False)
        raise CommitUnknownError(
            f"{setting.membership}: the producer was given the commit of"
            f" {', '.join(map(str, sorted(offsets)))} for its transaction and did not answer in"
            " time; abort the transaction"
        )

    async def _hand_to(self, producer: Producer, offsets: Positions, seconds: float) -> None:
        positions = [
            KafkaPartition(name.topic, name.partition, at.offset, at.metadata)
            for name, at in sorted(offsets.items())
        ]
        metadata = group_metadata(self._setting.membership)
        await trio.to_thread.run_sync(
            partial(producer.send_offsets_to_transaction, positions, metadata, seconds),
            abandon_on_cancel=True,
        )

    def _refusal(self, error: KafkaException, offsets: Positions) -> StaleGenerationError | None:
        """The end of the generation, if that is what the producer's failure says."""
        setting = self._setting
        code = error.args[0].code()
        reaction = reaction_for(Request.COMMIT, code)
        if reaction.action not in (Action.LOST, Action.FAIL):
            return None
        refusal = broker_error(Request.COMMIT, code, str(setting.membership))
        setting.refused(numbers(offsets), refusal.name, True)
        end = setting.end(End(reaction.cause or Cause.MEMBERSHIP_LOST, str(refusal), refusal))
        reason = f"the coordinator refused it ({refusal.name}); abort the transaction"
        return stale_error(setting.membership, end, reason)

    async def _outcome_of_anothers_request(self, entry: _Entry) -> None:
        with self._shielded():
            await entry.done.wait()
        if not entry.done.is_set():
            entry.error = unknown_error(self._setting, entry.offsets, self._passed())

    @contextmanager
    def _shielded(self) -> Iterator[trio.CancelScope]:
        """A scope that nothing but its deadline cancels, which `bound` may bring forward."""
        with trio.CancelScope(shield=True, deadline=self._deadline()) as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.remove(scope)

    def _deadline(self) -> float:
        return min(trio.current_time() + self._setting.commit_timeout, self._latest)

    async def _send_waiting(self) -> None:
        """Send all that waits, as one request. Raises Cancelled only before it takes any."""
        expired = await self._lease_is_over()
        entries, self._waiting = self._waiting, []
        for entry in entries:
            entry.taken = True
        try:
            if self._over is not None:
                self._refuse(entries, self._stale(self._over))
            elif expired:
                self._refuse(entries, _lease_error(self._setting))
            else:
                await self._send(entries)
        # A handler of events that raises: nobody may take its commit for acknowledged.
        except Exception as error:  # noqa: BLE001
            for entry in entries:
                entry.error = entry.error or error
        finally:
            for entry in entries:
                entry.done.set()

    async def _lease_is_over(self) -> bool:
        """Wait for a heartbeat to confirm membership; True if none did in time."""
        with trio.move_on_at(self._deadline()):
            await self.lease_confirmed()
        return self._setting.lease.left <= 0

    def _passed(self) -> End | None:
        """The generation's end, once none of its commits may be waited for any more."""
        if self._over is None and trio.current_time() >= self._latest:
            return self._setting.why()
        return self._over

    def _stale(self, end: End) -> StaleGenerationError:
        return stale_error(self._setting.membership, end, f"the generation has ended ({end})")

    def _refuse(self, entries: list[_Entry], error: Exception) -> None:
        for entry in entries:
            entry.error = error
            self._setting.refused(numbers(entry.offsets), str(error), True)

    async def _send(self, entries: list[_Entry]) -> None:
        merged, moves = self._merge(entries)
        self._attempt = attempt = CommitRequest(self._setting, merged, moves, self.lease_confirmed)
        try:
            with self._shielded():
                await attempt.run()
        finally:
            self.unanswered |= attempt.unanswered
        self._attempt = None
        if (end := self._passed()) is not None:
            attempt.cut_off(self._stale(end))
        for entry in entries:
            entry.error = entry.error or attempt.outcome(entry.offsets)

    def _merge(
        self, entries: list[_Entry]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, int]]:
        """What one request carries: of each partition the latest call's offset, and its moves."""
        merged: dict[TopicPartition, OffsetAndMetadata] = {}
        moves: dict[TopicPartition, int] = {}
        for entry in entries:
            try:
                self._setting.floors.check(entry.offsets, entry.moves, beyond_read=True)
                for name, position in entry.offsets.items():
                    if moves.get(name) == entry.moves[name]:
                        _check_order(name, position, merged[name])
            except OffsetBehindFloorError as error:
                entry.error = error
            else:
                merged.update(entry.offsets)
                moves.update(entry.moves)
        return merged, moves


def _check_order(
    partition: TopicPartition, position: OffsetAndMetadata, before: OffsetAndMetadata
) -> None:
    if position.offset < before.offset:
        raise OffsetBehindFloorError(
            f"{partition}: offset {position.offset} is behind {before.offset}, whose"
            " commit was asked for before; nothing of this commit was sent"
        )


def _lease_error(setting: CommitContext) -> LeaseExpiredError:
    return LeaseExpiredError(
        f"{setting.membership}: the lease has ended and no heartbeat could confirm membership, so"
        " the commit was not sent; its records will be read again by whoever owns the partitions"
    )


_MAGIC: Final = b"CGMDv2:"
_NO_GENERATION: Final = -1
_GROUP: Final = "kgroup-format-check"
_INSTANCE: Final = "instance"


def group_metadata(membership: Membership) -> bytes:
    """The bytes that ``Producer.send_offsets_to_transaction`` takes for this generation.

    Raises:
        UsageError: the installed librdkafka writes them in another format.
    """
    _check_format()
    return _pack(
        membership.group_id,
        membership.generation_id,
        membership.member_id,
        membership.group_instance_id,
    )


def _pack(group_id: str, generation_id: int, member_id: str, instance: str | None) -> bytes:
    static = b"\x01" if instance is None else b"\0" + instance.encode() + b"\0"
    return b"".join(
        (
            _MAGIC,
            struct.pack("=i", generation_id),
            group_id.encode() + b"\0",
            member_id.encode() + b"\0",
            static,
        )
    )


@cache
def _check_format() -> None:
    """Compare with what librdkafka itself writes for a consumer that never connects."""
    for instance in (None, _INSTANCE):
        static = {} if instance is None else {"group.instance.id": instance}
        consumer = Consumer({"group.id": _GROUP, "bootstrap.servers": "", **static})
        try:
            theirs = bytes(consumer.consumer_group_metadata())
        finally:
            consumer.close()
        ours = _pack(_GROUP, _NO_GENERATION, "", instance)
        if theirs != ours:
            raise UsageError(
                "this librdkafka writes group metadata in another format than kgroup knows"
                f" ({theirs!r}, expected {ours!r}): offsets cannot be committed in a transaction"
                " with this version of confluent-kafka; install one from 2.16 to below 3"
            )
