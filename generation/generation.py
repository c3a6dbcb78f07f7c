"""Generation: what a program holds while it owns partitions.

A program starts its work, reads records and commits offsets through it. It ends when any of its
tasks ends, and nothing that belongs to it outlives it. The group makes it and decides what follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, TypeVarTuple, Unpack, final

import trio

from kgroup import arguments
from kgroup.client.subscription import Topics
from kgroup.config import GroupConfig
from kgroup.errors import StaleGenerationError, UsageError, short_list
from kgroup.events import Event
from kgroup.functions import check_task
from kgroup.generation.commit_request import generation_ended_error, stale_error
from kgroup.generation.offset_stream import OffsetStream
from kgroup.generation.pauses import undisturbed
from kgroup.generation.record_stream import RecordStream
from kgroup.generation.scopes import may_end_early
from kgroup.generation.states import State
from kgroup.generation.streams import GenerationParts
from kgroup.interfaces import Batch
from kgroup.loop_thread import LoopThread
from kgroup.retry_policy import OpenRecords
from kgroup.types import Assignment, Cause, End, Membership, Offsets, TopicPartition
from kgroup.uncopied import SEND_MESSAGES, Uncopied

if TYPE_CHECKING:
    from confluent_kafka import Producer
else:  # so that typing.get_type_hints finds the names without the imports
    Producer = Any

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_RECORDS: Final = 1000
"""The most records of a batch, unless `records()` is called with another number."""
_PLAIN: Final = "make it one, or call it in a thread by trio.to_thread.run_sync"
_NEXT: Final = "continue with the next generation, which next() and the loop over the group give"
_CLOSED: Final = "its group is closed and gives no other one"
_ADVICE: Final = {Cause.CLOSED: _CLOSED, Cause.CANCELLED: _CLOSED, Cause.TASK_RAISED: _CLOSED}
"""What follows an end after which the group closes; after others it is `_NEXT`."""


class MembershipView(Uncopied):
    """The properties of a membership, for classes that belong to one generation.

    Args:
        membership: the member's, from the response to its JoinGroup.
    """

    _instead: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"start": "start_soon(fn, *args), which runs an async function in a task"}
    )
    """What a class has in place of a method that another package's generation has."""
    _in_its_place = SEND_MESSAGES

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    if not TYPE_CHECKING:  # so that type checkers report names that do not exist

        def __getattr__(self, name: str) -> object:
            """Say what stands for the method that other generations have."""
            if name in self._instead:
                raise AttributeError(
                    f"a Generation of this package has no {name}; it has {self._instead[name]}",
                    name=name,
                    obj=self,
                )
            return self.__getattribute__(name)  # the usual error, also that of a property

    @property
    def group_id(self) -> str:
        """The group."""
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        """The id under which the coordinator knows this member."""
        return self._membership.member_id

    @property
    def group_instance_id(self) -> str | None:
        """The static identity, or None."""
        return self._membership.group_instance_id

    @property
    def generation_id(self) -> int:
        """The coordinator's id of the generation. It can repeat; `epoch` does not."""
        return self._membership.generation_id

    @property
    def epoch(self) -> int:
        """kgroup's own number of the generation, which always increases in a ConsumerGroup."""
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
    """One generation of a consumer group, for one member. `ConsumerGroup` makes it.

    Attributes:
        assignment: the partitions, a sorted collection.
        ending: set when the generation begins to end; a handler of long batches can check it, and
            commit a part of its batch.
    """

    def __init__(self, parts: GenerationParts, assignment: Assignment) -> None:
        super().__init__(parts.lifecycle.membership)
        self.assignment = assignment
        self.ending = parts.lifecycle.ending_for_program
        self._parts = parts
        self._member = parts.member
        self._lifecycle = parts.lifecycle
        self._positions = parts.positions
        self._searches = parts.searches
        self._committer = parts.committer
        self._streams: set[RecordStream | OffsetStream] = set()
        self._asked_when_over = frozenset[TopicPartition]()
        """The partitions of which the program has opened a stream after the end."""
        self._loop_thread = LoopThread()

    @property
    def start_offsets(self) -> Mapping[TopicPartition, int]:
        """For each partition its start offset, if it was found before the hand-over."""
        return self._positions.start_offsets

    @property
    def state(self) -> State:
        """Running, draining or ended."""
        return self._lifecycle.state

    @property
    def end(self) -> End | None:
        """Why it ended, or None while it runs."""
        return self._lifecycle.recorded_end

    @property
    def lease(self) -> float:
        """The seconds for which no other member can own the partitions; 0 if there are none left.

        A handler can check it before a side effect that must not happen twice. It does not cover
        another process with the same ``group_instance_id``, nor the removal of the member by an
        administrator: the next heartbeat reports those.
        """
        return 0.0 if self.state is State.ENDED else max(0.0, self._lifecycle.lease.left)

    def lag(self) -> Mapping[TopicPartition, int | None]:
        """How far each partition's reader is behind the end of its log, in offsets.

        It is the high watermark less the offset of the next record that a stream hands out: what
        this generation has not been given yet. Any thread may call it, and it requests nothing.
        The brokers send the high watermark with every response to a Fetch. While a reader takes so
        little that fetching stops, it is therefore that of the last response.

        The high watermark counts under ``read_committed`` too, as in Kafka's own tools, because
        librdkafka keeps the last stable offset to itself: records of a transaction that is still
        open are lag. The marker of a transaction is none once it was fetched, which is known within
        about a second.

        Returns:
            for each partition of the assignment the lag; None if it is not known: before its first
            response, before a stream has read it, or after the end of the generation.
        """
        # A source need not have it; see `RecordSource`.
        read: Callable[[int], Mapping[TopicPartition, int | None]] | None = getattr(
            self._member.source, "lag", None
        )
        known = {} if read is None else read(self.epoch)
        return {partition: known.get(partition) for partition in self.assignment}

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._member.config

    @property
    def streams(self) -> Collection[RecordStream | OffsetStream]:
        """The streams of records, and of offsets, that are open."""
        return frozenset(self._streams)

    def start_soon(self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: Unpack[Ts]) -> bool:
        """Start a task of this generation; its return or exception ends the generation.

        Returns:
            False if the generation drains or has ended. Nothing was started, which is no error:
            the program requests the next generation.

        Raises:
            ArgumentError: ``fn`` is not a function, but a coroutine, for example. Call
                ``start_soon(handle, batch)``, not ``start_soon(handle(batch))``. Or it is not
                async, or takes other arguments.
        """
        self._check_thread("start_soon")
        check_task("fn", fn, args, instead=_PLAIN)
        return self._lifecycle.start_work(fn, args)

    @trio.lowlevel.enable_ki_protection
    async def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run a function as work of this generation, and wait for it; any task may call this.

        Unlike a task of `start_soon`, the function does not end the generation when it returns or
        raises, and it may begin during the drain. The generation does not end before the function
        does, even if the caller has been cancelled.

        Raises:
            StaleGenerationError: the generation has ended, or ended while the function ran. The
                function is cancelled at the drain's deadline, or at once if membership is lost.
            ArgumentError: ``fn`` is not an async function without arguments.
            Exception: the function's own exception.

        Cancellation: the function is cancelled, and the call ends when it has. If it returns or
            raises all the same, so does the call.
        """
        self._check_thread("run", waits=True)
        check_task("fn", fn, (), instead=_PLAIN)
        finished = await self._lifecycle.run_within(fn)
        if finished is None:
            # A KeyboardInterrupt in the function ends the generation a moment later.
            await self._lifecycle.ending.wait()
            assert self.end is not None  # nothing ends without a cause
            reason = f"what ran within the generation was cancelled by its end ({self.end})"
            raise stale_error(self._membership, self.end, reason)
        return finished.value

    @trio.lowlevel.enable_ki_protection
    async def wait_ended(self) -> End:
        """Wait until every task of the generation has ended, and return why.

        In the body of the loop, it says that the body has no other work in the generation. A task
        of this generation must not call it: it would wait for itself until the drain's deadline.
        """
        self._check_thread("wait_ended", waits=True)
        return await self._lifecycle.wait_ended()

    def scope(self) -> AbstractContextManager[None, bool]:
        """A block for work in the body of the loop: ``with generation.scope(): ...``.

        The work is cancelled when the generation's tasks are: at the drain's deadline, or at once
        if membership is lost. A `StaleGenerationError` of this generation ends the block and is not
        raised, so that the loop continues with the next generation.
        """
        self._check_thread("scope")
        return may_end_early(self._lifecycle.scope())

    def records(
        self,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
        *,
        max_records: int = MAX_RECORDS,
    ) -> RecordStream:
        """Batches of one owned partition, of several, or by default of all of them.

        If the generation ends, or has ended before the call, the stream ends without an error.

        Args:
            partitions: the partitions.
            max_records: the most records of a batch, 1 or more.

        Raises:
            ArgumentError: an argument has a wrong type, or max_records is less than 1.
            NotOwnedError: the generation does not own a partition.
            UsageError: another open stream reads one of the partitions.
            StaleGenerationError: the program asks for another stream of a partition after one that
                it opened when the generation had ended already.
        """
        self._check_thread("records")
        limit = arguments.whole("max_records", max_records, 1)
        wanted = self._free(partitions)
        return RecordStream(self._parts, wanted, self._streams, limit)

    def offsets(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None = None
    ) -> OffsetStream:
        """The offsets to read of one owned partition, of several, or by default of all of them.

        It is for programs that read records by other means, as ``kgroup.spark`` does. kgroup cannot
        know what such a program has read, so commits of these partitions have no upper bound.

        Raises:
            ArgumentError: ``partitions`` has something else than partitions.
            NotOwnedError: the generation does not own a partition.
            UsageError: another open stream reads one of the partitions.
        """
        self._check_thread("offsets")
        wanted = self._free(partitions)
        self._positions.lift_upper_bounds(wanted)
        return OffsetStream(self._parts, wanted, self._streams)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return no batch of these partitions, or of any, until `resume`. No record is lost.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._check_thread("pause")
        self._refuse_if_over("nothing was done")
        self._parts.pauses.pause(self._named(partitions))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return batches of these partitions, or of all, again.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._check_thread("resume")
        self._refuse_if_over("nothing was done")
        self._parts.pauses.resume(self._named(partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at this offset, and allow commits from there on.

        Raises:
            ArgumentError: the offset is not an int from 0 to 2**63-1, or ``partition`` is not a
                partition.
            NotOwnedError: the generation does not own the partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._check_thread("seek")
        self._refuse_if_over("nothing was done")
        self._positions.check_owned(partition)
        committed = "the group's committed offset, as Consumer.committed returns it"
        position = arguments.position(f"{partition}: offset", offset, "seek to", committed)
        source = self._member.source
        # What a thread gets lies on one side of the seek.
        with undisturbed(source):
            self._positions.seek(partition, position)
            source.seek(self.epoch, partition, position)
        self._searches.sought(partition)
        self._parts.open_records.sought(partition)
        if (observer := self._member.runtime.observer) is not None:
            observer.sought(self._membership, partition, position)

    @trio.lowlevel.enable_ki_protection
    async def commit(self, offsets: Offsets, *, beyond_read: bool = False) -> None:
        """Commit the next offsets to read, under this generation's id.

        A generation sends one commit request at a time. Commits that wait for it are sent together
        in the next request, and each caller gets its own result.

        Args:
            offsets: for each partition, the offset of the next record to read (the last processed
                offset + 1), as an int or an `OffsetAndMetadata`.
            beyond_read: whether to allow offsets past the records that the program was given. No
                member will read the records in between.

        Raises:
            ArgumentError: ``offsets`` is not a mapping of partitions to offsets, or ``beyond_read``
                is not a bool; nothing was sent.
            StaleGenerationError: the generation has ended, or the coordinator has moved on;
                nothing was committed, or only the partitions that the error names. It is a
                `LeaseExpiredError` if the coordinator did not confirm the membership in time.
            NotOwnedError: the generation does not own a partition; nothing was sent.
            OffsetBehindCommitError: an offset is less than the start position or the last commit;
                nothing was sent.
            OffsetBeyondReadError: an offset is past the records that the program was given, and
                the program neither sought there nor reads by `offsets`; nothing was sent.
            CommitFailedError: the coordinator refused some partitions; ``.partitions`` says which
                and why.
            CommitUnknownError: the commit was sent, and not confirmed in time.

        Cancellation: raises Cancelled only if nothing was sent. A commit that was sent is awaited,
            up to ``commit_timeout`` and never past the drain's deadline.

        Source: KIP-394, KIP-447; Kafka's ``OffsetMetadataManager.validateOffsetCommit``.
        """
        self._check_thread("commit", waits=True)
        self._refuse_if_ended()
        arguments.instance("beyond_read", beyond_read, bool)
        checked = self._positions.check(offsets, beyond_read=beyond_read)
        if not checked:
            await trio.lowlevel.checkpoint()
            return
        await self._committer.commit(checked)

    def transaction_metadata(self) -> bytes:
        """This generation's identity, as ``Producer.send_offsets_to_transaction`` takes it.

        `commit_in_transaction` needs it not, makes more checks, and knows what becomes of the
        offsets. Here the group does not, so the generation's member id does not continue after its
        end: the coordinator then refuses offsets that arrive late.

        Raises:
            StaleGenerationError: the generation has ended; abort the transaction.
            UsageError: the installed librdkafka uses another format.
        """
        identity = self._committer.give_identity()
        self._refuse_if_ended()  # A thread may ask for it at the very moment of the end.
        return identity

    @trio.lowlevel.enable_ki_protection
    async def commit_in_transaction(
        self, producer: Producer, offsets: Offsets, *, beyond_read: bool = False
    ) -> None:
        """Add these offsets to the producer's open transaction, under this generation's id.

        They become visible when the program commits the transaction; the drain waits for the task
        that does so. A later commit may name lower offsets, because the transaction may yet be
        aborted.

        Args:
            producer: a transactional ``confluent_kafka.Producer`` with a transaction begun.
            offsets: as in `commit`.
            beyond_read: as in `commit`.

        Raises:
            ArgumentError: as for `commit`, or ``producer`` is not a producer; nothing was sent.
            StaleGenerationError: the generation has ended, or the coordinator refused it; abort
                the transaction.
            NotOwnedError, OffsetBehindCommitError, OffsetBeyondReadError: as for `commit`; nothing
                was sent.
            CommitUnknownError: the producer did not finish in time; abort the transaction. Until
                the producer's call has ended, ``abort_transaction`` raises a retriable error.
            UsageError: an earlier call with this producer in this generation got no answer; nothing
                was sent. What it has sent may still arrive, in a later transaction of the producer.
            confluent_kafka.KafkaException: the producer failed; its error says whether to retry or
                to abort.

        Cancellation: raises Cancelled only if the producer was not called. A thread makes the call,
            which is awaited, up to ``commit_timeout`` and never past the drain's deadline.

        Source: KIP-447.
        """
        self._check_thread("commit_in_transaction", waits=True)
        self._refuse_if_ended()
        wanted = "it must be a transactional confluent_kafka.Producer"
        arguments.with_method("producer", producer, "send_offsets_to_transaction", wanted)
        arguments.instance("beyond_read", beyond_read, bool)
        checked = self._positions.check(offsets, beyond_read=beyond_read)
        await self._committer.commit_in_transaction(producer, checked)

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Report an event about this generation to the group's event handlers.

        Raises:
            TypeError: the class has other fields; nothing was reported.
        """
        self._member.emitter.emit(kind, **fields)

    def __repr__(self) -> str:
        why = f": {self.end}" if self.end is not None else ""
        return f"<Generation {self.generation_id} of {self.group_id!r}, {self.state.value}{why}>"

    def _refuse_if_over(self, outcome: str) -> None:
        if (end := self._lifecycle.final_end) is not None:
            raise StaleGenerationError(
                f"{self._membership}: the generation has ended ({end}), so that {outcome};"
                f" {_ADVICE.get(end.cause, _NEXT)}",
                end,
            )

    def _check_thread(self, method: str, *, waits: bool = False) -> None:
        self._loop_thread.check(self._membership, f"generation.{method}", waits=waits)

    def _refuse_if_ended(self) -> None:
        if self.state is State.ENDED and self.end is not None:
            raise generation_ended_error(self._membership, self.end)

    def _free(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None
    ) -> frozenset[TopicPartition]:
        wanted = self._named(partitions)
        # The end may come just before a program opens its stream. One that then opens another one
        # would do so in a loop without end, in which nothing is ever read.
        if again := wanted & self._asked_when_over:
            self._refuse_if_over(f"nothing more of {short_list(sorted(again))} is read")
        if self.state is State.ENDED:
            self._asked_when_over |= wanted
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


def sought_since(generation: object, batch: Batch) -> int | None:
    """Where the program has sought in a batch's partition since it was given the batch, last.

    For kgroup's own modules; any thread may call it. None if it has not, or that is not known of
    the batch. The generation is as for `subscription_of`.
    """
    of_trio, seeks = _of_trio(generation), batch._seeks  # noqa: SLF001
    if seeks is None or of_trio is None:
        return None
    positions = of_trio._positions  # noqa: SLF001
    if positions.seeks[batch.partition] == seeks:
        return None
    return positions.lower_bound(batch.partition)


def own_commits_of(generation: object, batch: Batch) -> str:
    """What the program itself has committed of a batch that it was given; empty for nothing.

    For kgroup's own modules; any thread may call it. After a seek that is not known.
    """
    of_trio, partition = _of_trio(generation), batch.partition
    if of_trio is None or sought_since(generation, batch) is not None:
        return ""
    positions = of_trio._positions  # noqa: SLF001
    first, committed = batch.messages[0].offset() or 0, positions.lower_bound(partition)
    if committed > first:
        return (
            f"the program itself had committed offset {committed} of {partition} by then, so the"
            " records before it will not be read again"
        )
    if positions.is_committed(partition, batch.next_offset):
        return (
            f"the program has added offsets of {partition} to transactions: the records will be"
            " read again, unless a transaction with their offsets was committed"
        )
    return ""


def subscription_of(generation: object) -> tuple[Topics, frozenset[str]]:
    """What a generation's member subscribes to now, and the addresses of the group's brokers.

    For kgroup's own modules; any thread may call it.

    Args:
        generation: of any package; the program's own tests may pass anything, which has none.
    """
    of_trio = _of_trio(generation)
    if of_trio is None:
        return (), frozenset()
    member = of_trio._member  # noqa: SLF001
    return member.subscription.topics, member.cluster.known_addresses


def open_records_of(generation: object) -> OpenRecords:
    """The records that have failed in a generation, and are to be tried again.

    For kgroup's own modules; any thread may call it. The generation is as for `subscription_of`.
    """
    of_trio = _of_trio(generation)
    return OpenRecords() if of_trio is None else of_trio._parts.open_records  # noqa: SLF001


async def pause_retries(generation: Generation, batch: Batch, seconds: float) -> None:
    """Wait so long, or until the generation begins to end, or the program seeks in the partition.

    For kgroup's own modules. A seek that was made since the program was given the batch counts.
    """
    with trio.move_on_after(seconds) as scope:
        opened = generation._parts.open_records  # noqa: SLF001
        with opened.ended_by_seeks(batch.partition, scope.cancel):
            if sought_since(generation, batch) is not None:
                scope.cancel()
            await generation.ending.wait()


def _of_trio(generation: object) -> Generation | None:
    """The generation itself, or the one that it calls if it is of threads or of asyncio."""
    found = getattr(generation, "_generation", generation)
    return found if isinstance(found, Generation) else None
