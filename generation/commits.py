"""Commits of one generation: one request at a time; those that wait go out together.

Each caller has its own outcome, for its own partitions. INVARIANTS: a commit carries the ids of the
generation that it was called on, and never those of another one. Past the lease nothing is sent:
commits wait for a heartbeat to confirm the membership, and fail if none does in time.

A coordinator may not know a topic yet, or no more: only a wait shows which. A commit that waits for
that is *postponed*. It waits outside of its turn, so that commits of other topics go out meanwhile,
and takes a turn for each attempt. Commits that name one of its partitions wait for its outcome, as
they must not be overtaken by it; so do those that name a partition of one that waits. In a drain,
which is short, it keeps its turn.

Cancellation. INVARIANT: from the moment at which a request includes a caller's offsets, that caller
is shielded until the outcome is known, or until the deadline. Before that, a cancelled caller takes
its offsets back and nothing of them is sent.

Offsets can also be committed inside a producer's transaction. librdkafka's consumer would stamp
them with whatever generation it is in; here the bytes that name the generation are made from the
membership itself.

Source: KIP-447; librdkafka's ``rd_kafka_consumer_group_metadata_write``.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import attrs
import confluent_kafka
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request, reaction_to_code
from kgroup.errors import (
    CommitUnknownError,
    LeaseExpiredError,
    OffsetBehindCommitError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import Committed
from kgroup.generation.commit_request import (
    CommitOffsets,
    CommitRequest,
    emit_refused,
    generation_ended_error,
    numbers,
    stale_error,
    unknown_error,
)
from kgroup.generation.late_commit_watcher import LateCommitWatcher
from kgroup.generation.late_commits import LateCommits, PendingCommits
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.notifier import Notifier
from kgroup.permissions import to_grant
from kgroup.records.librdkafka_messages import describe_error
from kgroup.types import Cause, End, Membership, OffsetAndMetadata, TopicPartition
from kgroup.worker_thread import unlimited_threads

if TYPE_CHECKING:
    from confluent_kafka import Producer

_MAGIC: Final = b"CGMDv2:"
_NO_GENERATION: Final = -1
_GROUP: Final = "kgroup-format-check"
_INSTANCE: Final = "instance"
_PAUSE_IN_A_DRAIN: Final = 0.5
_FOR_THE_REQUEST: Final = 0.05
"""Seconds for which a cancelled caller, at its deadline, waits for the end of its request."""
_MOST_OF_A_DRAIN: Final = 0.25
"""In a drain, a commit waits after one that did not reach the coordinator for so many seconds, and
for this part of the drain at most."""


@final
@attrs.define(eq=False)
class _Entry:
    """One caller's commit.

    Attributes:
        offsets: what it commits.
        moves: `Positions.moves` when it was called.
        taken: whether a request includes it, so that it may have been sent.
        postponed: whether its request is postponed, and it has no outcome yet.
        queue: the scope in which its caller waits for its turn.
        done: is set when the outcome is known.
        error: the outcome; None if all was committed.
    """

    offsets: CommitOffsets
    moves: Mapping[TopicPartition, int]
    taken: bool = False
    postponed: bool = False
    queue: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


@final
class Committer:
    """Sends the commits of one generation.

    A lock gives callers their turn, in the order of their calls. The caller that has the turn
    sends the offsets of all that wait; the others then wait for the outcome, and for no turn.

    Attributes:
        late: the commits of this generation that got no answer.
        unlocated_commits: for each partition, how often a commit of it was called while its start
            was not known.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        late: Mapping[TopicPartition, PendingCommits] = MappingProxyType({}),
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._membership = lifecycle.membership
        self._positions = positions
        self._waiting: list[_Entry] = []
        self._postponed: list[CommitRequest] = []
        self._fewer_behind = Notifier()
        """Is notified when a commit may no longer have to wait for the outcome of another one."""
        self._turn = trio.StrictFIFOLock()
        self._limiter = unlimited_threads()
        self._backoff = member.new_backoff()
        self._not_before = -math.inf
        """When the next request may be sent, by trio's clock. One that follows a request which did
        not reach the coordinator waits: a caller may repeat its commit without a pause."""
        self.late = LateCommits(late)
        self._watcher = LateCommitWatcher(member, lifecycle, positions, self.late, self._turn)
        self._unanswered: dict[int, Producer] = {}
        """By their ids, which no other object gets as long as they are here: producers of which a
        call got no answer. What it has sent may arrive in their next transaction, also after this
        one was aborted. In the next generation the coordinator refuses it."""
        self._identity_given = False
        self.unlocated_commits: Counter[TopicPartition] = Counter()
        self._unlocated_under_way: Counter[TopicPartition] = Counter()

    @property
    def unanswered(self) -> bool:
        """Whether the coordinator may yet receive a commit that was sent under this generation.

        What the program's own producers send is not known.
        """
        return self.late.any_unanswered or bool(self._unanswered) or self._identity_given

    def give_identity(self) -> bytes:
        """`group_metadata`, for commits by the program's own producers. Any thread may call it."""
        self._identity_given = True
        return group_metadata(self._membership)

    def may_be_committing(self, partition: TopicPartition) -> bool:
        """Whether a commit that was called before the start was known is still under way."""
        return self._unlocated_under_way[partition] > 0

    async def commit(self, offsets: CommitOffsets) -> None:
        """Send these offsets, which were checked, and wait for their outcome."""
        entry = _Entry(offsets, self._positions.moves(offsets))
        self._waiting.append(entry)
        with self._counted(offsets):
            try:
                while not entry.taken:
                    with trio.CancelScope() as entry.queue:
                        async with self._turn:
                            if not entry.taken:
                                await self._send_waiting(entry)
                    # What it waits for may have ended while it sent the commits of others.
                    if self._is_behind(entry):
                        await self._fewer_behind.wait()
                if not entry.done.is_set():
                    await entry.done.wait()
            except trio.Cancelled:
                if not entry.taken:
                    self._waiting.remove(entry)
                    self._fewer_behind.notify()
                    raise
                await self._outcome_of_anothers_request(entry)
        if entry.error is not None:
            raise entry.error

    async def commit_in_transaction(self, producer: Producer, offsets: CommitOffsets) -> None:
        """Hand these offsets, which were checked, to the producer's open transaction."""
        with self._counted(offsets):
            await self._add_to_transaction(producer, offsets)

    def watch_late_commits(self) -> None:
        """Check from time to time whether a late commit has arrived, if one may."""
        self._watcher.start()

    async def check_late_commits(self) -> None:
        """Check once whether a late commit has arrived, if one may."""
        await self._watcher.check()

    async def _add_to_transaction(self, producer: Producer, offsets: CommitOffsets) -> None:
        await trio.lowlevel.checkpoint()
        # A commit that restores one of these must not arrive after the producer's.
        restores = bool(self.late.pending.keys() & offsets.keys())
        async with self._turn if restores else nullcontext():
            if (refusal := await self._refusal_now()) is not None:
                emit_refused(self._member.emitter, offsets, str(refusal), stale=True)
                raise refusal
            if id(producer) in self._unanswered:
                raise UsageError(
                    f"{self._membership}: an earlier call with this producer got no answer, and the"
                    " offsets that it has sent may still arrive, and be committed by this"
                    " transaction; nothing was sent. Abort it and close the producer, and make a"
                    " new one with the same transactional.id, or end the process"
                )
            if restores:
                self.late.forget(offsets)
        began = self._member.clock.now()
        if await self._answers(producer, offsets, began):
            self._positions.committed_in_transaction(offsets)
            seconds = self._seconds_since(began)
            self._member.emitter.emit(Committed, offsets=numbers(offsets), seconds=seconds)
            return
        late = "the producer did not answer in time"
        emit_refused(self._member.emitter, offsets, late, seconds=self._seconds_since(began))
        raise CommitUnknownError(
            f"{self._membership}: the producer did not add the offsets of"
            f" {', '.join(map(str, sorted(offsets)))} to its transaction in time; abort the"
            " transaction, close the producer, and make a new one with the same transactional.id"
        )

    def _seconds_since(self, began: float) -> float:
        return max(0.0, self._member.clock.now() - began)  # a program's clock may go back

    async def _answers(self, producer: Producer, offsets: CommitOffsets, began: float) -> bool:
        """Hand offsets to a producer; False if it has not answered in time.

        Args:
            producer: the producer.
            offsets: the offsets.
            began: when the call was made, by the member's clock.
        """
        try:
            with self._lifecycle.commit_scope() as scope:
                await self._hand_to(producer, offsets, scope.deadline - trio.current_time())
                return True
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError._TIMED_OUT:  # noqa: SLF001 # which comes as the scope ends
                seconds = self._seconds_since(began)
                if (stale := self._refusal(error, offsets, seconds)) is not None:
                    raise stale from error
                reason = f"the producer failed ({describe_error(error.args[0])})"
                emit_refused(self._member.emitter, offsets, reason, seconds=seconds)
                if grant := to_grant(code):
                    error.add_note(grant)
                raise
        self._unanswered[id(producer)] = producer
        return False

    @contextmanager
    def _counted(self, offsets: CommitOffsets) -> Iterator[None]:
        """Count a commit of partitions of which the starts are not known."""
        unlocated = offsets.keys() & self._positions.unlocated
        self.unlocated_commits.update(unlocated)
        self._unlocated_under_way.update(unlocated)
        try:
            yield
        finally:
            self._unlocated_under_way.subtract(unlocated)

    async def _hand_to(self, producer: Producer, offsets: CommitOffsets, seconds: float) -> None:
        positions = [
            confluent_kafka.TopicPartition(
                name.topic, name.partition, at.offset, at.metadata, at.leader_epoch
            )
            for name, at in sorted(offsets.items())
        ]
        metadata = group_metadata(self._membership)
        await trio.to_thread.run_sync(
            partial(producer.send_offsets_to_transaction, positions, metadata, seconds),
            abandon_on_cancel=True,
            limiter=self._limiter,
        )

    def _refusal(
        self, error: KafkaException, offsets: CommitOffsets, seconds: float
    ) -> StaleGenerationError | None:
        """The end of the generation, if that is what the producer's failure says."""
        code = error.args[0].code()
        reaction = reaction_to_code(Request.COMMIT, code)
        if not reaction.loses_generation:
            return None
        refusal = broker_error(Request.COMMIT, code, str(self._membership))
        emit_refused(self._member.emitter, offsets, refusal.name, stale=True, seconds=seconds)
        end = self._lifecycle.end(
            End(reaction.cause or Cause.MEMBERSHIP_LOST, str(refusal), refusal)
        )
        reason = f"the coordinator refused it ({refusal.name}); abort the transaction"
        return stale_error(self._membership, end, reason)

    async def _outcome_of_anothers_request(self, entry: _Entry) -> None:
        with self._lifecycle.commit_scope():
            await entry.done.wait()
        if not entry.done.is_set():
            # The request may have the same deadline, as in a drain, and know the outcome with it.
            with trio.move_on_after(_FOR_THE_REQUEST, shield=True):
                await entry.done.wait()
        if not entry.done.is_set():
            end = self._lifecycle.end_if_commits_are_over()
            entry.error = unknown_error(self._membership, entry.offsets, end)

    async def _send_waiting(self, own: _Entry) -> None:
        """Send what may be sent, as one request. Raises Cancelled only before it takes any.

        Args:
            own: that of the caller who has the turn.
        """
        if trio.current_time() < self._not_before:
            await self._pause()
        refusal = await self._refusal_now()
        entries = self._take(own)
        if not entries:
            return
        with self._ending_all(entries):
            if refusal is not None:
                self._refuse(entries, refusal)
            else:
                await self._send(entries)

    def _take(self, own: _Entry) -> list[_Entry]:
        """Take the commits that wait, except those behind one that is postponed or stays."""
        taken, self._waiting = self._split()
        for entry in taken:
            entry.taken = True
            if entry is not own:
                # Its caller needs no turn any more, which may come only after other requests.
                entry.queue.cancel()
        return taken

    def _is_behind(self, entry: _Entry) -> bool:
        """Whether a commit has to wait for the outcome of another one."""
        return not entry.taken and entry in self._split()[1]

    def _split(self) -> tuple[list[_Entry], list[_Entry]]:
        """The waiting commits that may be sent, and those behind one that is postponed or stays."""
        behind = {name for request in self._postponed for name in request.left}
        free: list[_Entry] = []
        stay: list[_Entry] = []
        for entry in self._waiting:
            if behind.isdisjoint(entry.offsets):
                free.append(entry)
            else:
                behind.update(entry.offsets)
                stay.append(entry)
        return free, stay

    @contextmanager
    def _ending_all(self, entries: Iterable[_Entry]) -> Iterator[None]:
        """All of these have an outcome after the block, or are postponed."""
        try:
            yield
        # If anything goes wrong here, no caller may count its commit as acknowledged.
        except Exception as error:  # noqa: BLE001
            for entry in entries:
                entry.error = entry.error or error
                entry.postponed = False
        finally:
            for entry in entries:
                if not entry.postponed:
                    entry.done.set()

    async def _pause(self) -> None:
        """Wait until the next request may be sent; once the generation ends, only for a moment."""
        latest = min(self._not_before, self._lifecycle.commit_deadline())
        with self._lifecycle.until_ended(), trio.move_on_at(latest):
            await self._lifecycle.ending.wait()
            drain = self._member.config.drain_timeout
            await trio.sleep(min(_PAUSE_IN_A_DRAIN, drain * _MOST_OF_A_DRAIN))

    async def _refusal_now(self) -> StaleGenerationError | None:
        """Wait for a valid lease; the error if none came in time, or the generation has ended."""
        with trio.move_on_at(self._lifecycle.commit_deadline()):
            await self._lifecycle.wait_to_commit()
        if (end := self._lifecycle.final_end) is not None:
            return generation_ended_error(self._membership, end)
        return _lease_error(self._membership) if self._lifecycle.lease.left <= 0 else None

    def _refuse(self, entries: list[_Entry], error: Exception) -> None:
        for entry in entries:
            entry.error = error
            emit_refused(self._member.emitter, entry.offsets, str(error), stale=True)

    async def _send(self, entries: list[_Entry]) -> None:
        merged, moves = self._merge(entries)
        request = CommitRequest(
            self._member, self._lifecycle, self._positions, self.late, merged, moves
        )
        postponed = False
        try:
            with self._lifecycle.commit_scope() as scope:
                while not postponed and await request.advance():
                    postponed = self._lifecycle.start_service(
                        self._send_later, request, entries, scope.deadline
                    )
                    if not postponed:
                        await request.recover()
        finally:
            self.watch_late_commits()
        if request.reached:
            self._backoff.reset()
            self._not_before = -math.inf
        elif request.unreached:
            self._not_before = trio.current_time() + self._backoff.next()
        if postponed:
            self._postponed.append(request)
            for entry in entries:
                is_open = not request.left.isdisjoint(entry.offsets)
                entry.postponed = is_open and entry.error is None
        self._conclude(request, [entry for entry in entries if not entry.postponed])

    async def _send_later(
        self, request: CommitRequest, entries: Iterable[_Entry], deadline: float
    ) -> None:
        """Send a postponed request until its outcome is known, or until its deadline."""
        postponed = [entry for entry in entries if entry.postponed]
        for entry in postponed:
            entry.postponed = False
        try:
            with self._ending_all(postponed):
                try:
                    with self._lifecycle.commit_scope(deadline):
                        await self._attempt_later(request, postponed)
                finally:
                    self.watch_late_commits()
                self._conclude(request, postponed)
        finally:
            self._postponed.remove(request)
            self._fewer_behind.notify()

    async def _attempt_later(self, request: CommitRequest, entries: list[_Entry]) -> None:
        """Send it again and again; entries that have their outcomes meanwhile leave the list."""
        while True:
            await request.recover()
            async with self._turn:
                if not await request.advance():
                    return
            known = [entry for entry in entries if request.left.isdisjoint(entry.offsets)]
            with self._ending_all(known):
                self._conclude(request, known)
            entries[:] = [entry for entry in entries if not entry.done.is_set()]
            self._fewer_behind.notify()

    def _conclude(self, request: CommitRequest, entries: Iterable[_Entry]) -> None:
        """Give each of these its outcome; what is still open gets none any more."""
        if (end := self._lifecycle.end_if_commits_are_over()) is not None:
            request.cut_off(end)
        for entry in entries:
            entry.error = entry.error or request.outcome(entry.offsets)

    def _merge(
        self, entries: list[_Entry]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, int]]:
        """What one request carries: of each partition the latest call's offset, and its moves."""
        merged: dict[TopicPartition, OffsetAndMetadata] = {}
        moves: dict[TopicPartition, int] = {}
        for entry in entries:
            try:
                self._positions.check(entry.offsets, entry.moves, beyond_read=True)
                for name, position in entry.offsets.items():
                    if moves.get(name) == entry.moves[name]:
                        _check_order(name, position, merged[name])
            except OffsetBehindCommitError as error:
                entry.error = error
            else:
                merged.update(entry.offsets)
                moves.update(entry.moves)
        return merged, moves


def _check_order(
    partition: TopicPartition, position: OffsetAndMetadata, before: OffsetAndMetadata
) -> None:
    if position.offset < before.offset:
        raise OffsetBehindCommitError(
            f"{partition}: offset {position.offset} is behind {before.offset}, whose"
            " commit was called before this one; nothing of this commit was sent"
        )


def _lease_error(membership: Membership) -> LeaseExpiredError:
    return LeaseExpiredError(
        f"{membership}: the lease has ended, and no heartbeat confirmed the membership; the commit"
        " was not sent. The next owner of the partitions reads the records after the last"
        " commit again; continue with the next generation"
    )


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
