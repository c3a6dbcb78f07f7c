"""Generation: what a program holds while it owns partitions.

Everything is done through it: start work, read, commit. It ends when any of its tasks ends, and
nothing that belongs to it outlives it. How it came to be, and what comes after, is the group's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from kgroup import arguments
from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError, UsageError
from kgroup.events import Event
from kgroup.generation.commit_request import generation_ended_error, stale_error
from kgroup.generation.commits import group_metadata
from kgroup.generation.lifecycle import State
from kgroup.generation.streams import GenerationParts, OffsetStream, RecordStream
from kgroup.interfaces import Task
from kgroup.types import Assignment, End, Membership, Offsets, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer

T = TypeVar("T")

MAX_RECORDS: Final = 1000
"""How many records a batch has at most, unless `records()` is called with another number."""


class MembershipView:
    """A membership, as the holder of a generation reads it. Made by the class that is one.

    Args:
        membership: the member's, from the answer to its JoinGroup.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def group_id(self) -> str:
        """The group."""
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator knows this member by."""
        return self._membership.member_id

    @property
    def group_instance_id(self) -> str | None:
        """The static identity, or None."""
        return self._membership.group_instance_id

    @property
    def generation_id(self) -> int:
        """The coordinator's id of the generation; it can repeat, see `epoch`."""
        return self._membership.generation_id

    @property
    def epoch(self) -> int:
        """kgroup's own number of the generation; strictly rising within a ConsumerGroup."""
        return self._membership.epoch

    @property
    def leader(self) -> bool:
        """Whether this member computed the assignment."""
        return self._membership.leader

    @property
    def assignor(self) -> str:
        """The name of the assignor that the group chose."""
        return self._membership.assignor


@final
class Generation(MembershipView):
    """One generation of a consumer group, as one member has it. Made by `ConsumerGroup`.

    Attributes:
        assignment: the partitions; iterates over them.
        ending: set when the end begins; a handler of long batches checks it and commits part
            of its batch.
    """

    def __init__(self, parts: GenerationParts, assignment: Assignment) -> None:
        super().__init__(parts.lifecycle.membership)
        self.assignment = assignment
        self.ending = parts.lifecycle.ending
        self._parts = parts
        self._member = parts.member
        self._lifecycle = parts.lifecycle
        self._positions = parts.positions
        self._committer = parts.committer
        self._streams: set[RecordStream | OffsetStream] = set()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """For each partition the offset at which it starts, as far as the hand-over knew it."""
        return self._positions.start

    @property
    def state(self) -> State:
        """Running, draining or ended."""
        return self._lifecycle.state

    @property
    def end(self) -> End | None:
        """Why it ended, or None while it runs."""
        return self._lifecycle.why

    @property
    def lease(self) -> float:
        """Seconds for which the coordinator cannot have given the partitions away; 0 if over.

        A handler checks it before a side effect that must not happen twice.
        """
        return 0.0 if self.state is State.ENDED else max(0.0, self._lifecycle.lease.left)

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._member.config

    @property
    def streams(self) -> Collection[RecordStream | OffsetStream]:
        """The streams of records, and of offsets, that are open."""
        return frozenset(self._streams)

    def start_soon(self, fn: Task, *args: Any) -> bool:
        """Start a task that ends with this generation, and ends it when it returns or raises.

        Returns:
            False if the generation drains or has ended: nothing was started, which is no error;
            the next generation comes.

        Raises:
            ArgumentError: this is no function, such as a coroutine: ``start_soon(handle, batch)``
                is meant, and not ``start_soon(handle(batch))``.
        """
        return self._lifecycle.start_work(arguments.function("fn", fn), args)

    async def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run a function as work of this generation, from whatever task, and wait for it.

        Unlike a task of `start_soon` it ends nothing when it returns or raises, and it may begin
        in the drain. The generation's end waits for it, even where the caller is gone.

        Raises:
            StaleGenerationError: the generation has ended, or ended meanwhile: at the drain's
                deadline, or at once where membership is lost, the function is cancelled.
            Exception: what the function raised.

        Cancellation: the function is cancelled, and waited for.
        """
        arguments.function("fn", fn)
        finished = await self._lifecycle.run_within(fn)
        if finished is None:
            await trio.lowlevel.checkpoint_if_cancelled()
            assert self.end is not None  # nothing ends without a cause
            reason = f"what ran within the generation was cancelled by its end ({self.end})"
            raise stale_error(self._membership, self.end, reason)
        return finished.value

    async def wait_ended(self) -> End:
        """Wait until every task of the generation has ended; returns why.

        In the loop's body it says that the body has nothing more to do than that. A task of the
        generation's own would wait for itself, until the drain's deadline.
        """
        return await self._lifecycle.wait_ended()

    def scope(self) -> AbstractContextManager[None]:
        """A block for work in the loop's body: ``with generation.scope(): ...``.

        What is inside is cancelled when the generation's tasks are, at the drain's deadline or
        at once when membership is lost, and a `StaleGenerationError` of this very generation
        ends the block quietly. After the block the program goes on to the next generation.
        """
        return self._lifecycle.scope()

    def records(
        self,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
        *,
        max_records: int = MAX_RECORDS,
    ) -> RecordStream:
        """Batches of one owned partition, of several, or of all of them (the default).

        Args:
            partitions: which.
            max_records: how many records a batch has at most, 1 or more.

        Raises:
            ArgumentError: an argument is of the wrong type, or max_records is less than 1.
            NotOwnedError: a partition is not of this generation.
            UsageError: another open stream has one of them.
        """
        limit = arguments.whole("max_records", max_records, 1)
        wanted = self._free(partitions)
        return RecordStream(self._parts, wanted, self._streams, limit)

    def offsets(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None = None
    ) -> OffsetStream:
        """What there is to read of one owned partition, of several, or of all (the default).

        For a program that reads records by other means, such as ``kgroup.spark``. As only that
        knows what it has read, commits of these partitions may go as far as it says.

        Raises:
            ArgumentError: these are no partitions.
            NotOwnedError: a partition is not of this generation.
            UsageError: another open stream has one of them.
        """
        wanted = self._free(partitions)
        self._positions.lift(wanted)
        return OffsetStream(self._parts, wanted, self._streams)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`. Nothing is lost.

        Raises:
            NotOwnedError: a partition is not of this generation.
        """
        self._member.source.pause(self.epoch, self._named(partitions))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Hand out records of these partitions, or of all, again.

        Raises:
            NotOwnedError: a partition is not of this generation.
        """
        self._member.source.resume(self.epoch, self._named(partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at this offset, and allow commits from there on.

        Raises:
            ArgumentError: the offset is no int from 0 to 2**63-1, or the partition is none.
            NotOwnedError: the partition is not of this generation.
        """
        self._positions.check_owned(partition)
        position = arguments.whole(f"{partition}: offset", offset, 0)
        self._positions.move(partition, position)
        self._member.source.seek(self.epoch, partition, position)
        if (observer := self._member.runtime.observer) is not None:
            observer.sought(self._membership, partition, position)

    async def commit(self, offsets: Offsets, *, beyond_read: bool = False) -> None:
        """Commit the next offsets to read, under this generation's id.

        One request at a time is sent for a generation; commits that wait for their turn go out
        together, and each caller gets its own answer.

        Args:
            offsets: for each partition the offset of the next record to read (last handled + 1),
                as an int or an `OffsetAndMetadata`.
            beyond_read: allow offsets past what this member was given to read. The records
                between will be read by no member.

        Raises:
            ArgumentError: this is no mapping of partitions to offsets; nothing was sent.
            StaleGenerationError: the generation has ended, or the coordinator has moved on;
                nothing was committed. `LeaseExpiredError` where membership could not be
                confirmed in time.
            NotOwnedError: a partition is not of this generation; nothing was sent.
            OffsetBehindFloorError: an offset is behind the start position or the last commit;
                nothing was sent.
            OffsetBeyondReadError: an offset is past the records that were handed out, and the
                program neither sought there nor reads by `offsets`; nothing was sent.
            CommitFailedError: some partitions were refused; ``.partitions`` says which and why.
            CommitUnknownError: it was sent and not answered in time.

        Cancellation: raises Cancelled only if nothing was sent. A commit that was sent is waited
            for, up to ``commit_timeout`` and never past the drain's deadline.

        Source: KIP-394, KIP-447; Kafka's ``OffsetMetadataManager.validateOffsetCommit``.
        """
        self._refuse_if_ended()
        checked = self._positions.check(offsets, beyond_read=beyond_read)
        if not checked:
            await trio.lowlevel.checkpoint()
            return
        await self._committer.commit(checked)

    def transaction_metadata(self) -> bytes:
        """What ``Producer.send_offsets_to_transaction`` takes as this generation's identity.

        Raises:
            UsageError: the installed librdkafka writes it in another format.
        """
        return group_metadata(self._membership)

    async def commit_in_transaction(
        self, producer: Producer, offsets: Offsets, *, beyond_read: bool = False
    ) -> None:
        """Add these offsets to the producer's open transaction, under this generation's id.

        They become visible when the program commits the transaction; the drain waits for the
        task that does so. The floor is not moved, because the transaction may yet be aborted.

        Args:
            producer: a transactional ``confluent_kafka.Producer`` with a transaction begun.
            offsets: as in `commit`.
            beyond_read: as in `commit`.

        Raises:
            ArgumentError: as in `commit`, or this is no producer; nothing was sent.
            StaleGenerationError: the generation has ended or the coordinator refused it; abort
                the transaction.
            NotOwnedError: a partition is not of this generation; nothing was sent.
            OffsetBehindFloorError, OffsetBeyondReadError: as in `commit`; nothing was sent.
            CommitUnknownError: the producer did not answer in time; abort the transaction.
            confluent_kafka.KafkaException: the producer's own failure; its error says whether
                to retry or to abort.

        Cancellation: raises Cancelled only if the producer was not called. The call is made in a
            thread and waited for, up to ``commit_timeout`` and never past the drain's deadline.

        Source: KIP-447.
        """
        self._refuse_if_ended()
        if not callable(getattr(producer, "send_offsets_to_transaction", None)):
            wanted = "it must be a transactional confluent_kafka.Producer"
            raise ArgumentError("producer", producer, wanted)
        checked = self._positions.check(offsets, beyond_read=beyond_read)
        await self._committer.commit_in_transaction(producer, checked)

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Tell those who listen to the group's events of one about this generation."""
        self._member.emitter.emit(kind, **fields)

    def __repr__(self) -> str:
        why = f": {self.end}" if self.end is not None else ""
        return f"<Generation {self.generation_id} of {self.group_id!r}, {self.state.value}{why}>"

    def _refuse_if_ended(self) -> None:
        if self.state is State.ENDED and self.end is not None:
            raise generation_ended_error(self._membership, self.end)

    def _free(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None
    ) -> frozenset[TopicPartition]:
        wanted = self._named(partitions)
        for stream in self._streams:
            if shared := wanted & stream.partitions:
                names = ", ".join(map(str, sorted(shared)))
                raise UsageError(
                    f"{names}: another stream of {self._membership} has it already; a"
                    " partition is read by one stream at a time (close the other one first)"
                )
        return wanted

    def _named(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None
    ) -> frozenset[TopicPartition]:
        named = arguments.partitions("partitions", partitions)
        if named is None:
            return frozenset(self.assignment)
        for partition in named:
            self._positions.check_owned(partition)
        return named
