"""The interfaces between the layers, as typing Protocols; programs and tests can implement them.

This module has only Protocols and the values that their methods take and return: no I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import (
    Any,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    runtime_checkable,
)

import attrs
import trio

from kgroup.init_hints import typed_init
from kgroup.types import (
    Claim,
    MemberAssignments,
    Membership,
    MemberSubscription,
    OffsetAndMetadata,
    TopicInfo,
    TopicPartition,
)
from kgroup.uncopied import SEND_MESSAGES, refused_copy

T = TypeVar("T")


class Clock(Protocol):
    """A clock that never goes back, and that counts the time for which a machine was suspended."""

    def now(self) -> float:
        """The time in seconds; only differences have a meaning.

        Any thread may call it. It is called for each record that a program takes from a batch.
        """
        ...


class Random(Protocol):
    """The source of all random choices; ``random.Random`` implements it."""

    def random(self) -> float:
        """A float from 0 to less than 1."""
        ...

    def getrandbits(self, bits: int, /) -> int:
        """An int with this number of random bits."""
        ...


class StreamOpener(Protocol):
    """Opens a byte stream to a broker: over TCP, or in memory for tests."""

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Open a stream to an address.

        Raises:
            OSError: the connection failed.

        Cancellation: no stream is left open.
        """
        ...


class Compute(Protocol):
    """Calls functions that may take long, so that they do not block the event loop."""

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """Call a function, after all functions of earlier calls have ended.

        Args:
            work: the function; it takes no arguments.
            name: the name of the thread, as tools that inspect the process show it.

        Returns:
            what the function returns; what it raises is raised.

        Cancellation: the call ends at once; the function may run on, and its result is ignored.
        """
        ...


@runtime_checkable
class Assignor(Protocol):
    """Divides the partitions of the group's topics among the members; the group's leader runs it.

    An assignor may also have these attributes:

    - ``user_data(owned, generation_id) -> bytes | None``: returns data that the member sends when
      it joins; the leader finds it in ``MemberSubscription.user_data``. ``owned`` is the member's
      last assignment, or None if it has had none. The same arguments must give the same bytes,
      because a JoinGroup with other data starts a rebalance.
    - ``on_assignment(partitions, generation_id)``: every member calls it with its assignment,
      before the program receives the generation; it must not block.
    - ``cooperative``: True if the assignor first assigns a partition that changes owners to no
      member, so that its owner can revoke it (KIP-429). It has an effect only if all assignors that
      the member offers are cooperative: ``MemberSubscription.owned`` then has the partitions that
      the member owned.

    Source: Kafka's ``ConsumerPartitionAssignor``.
    """

    @property
    def name(self) -> str:
        """The name by which the group chooses an assignor (``protocol_name``)."""
        ...

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> MemberAssignments:
        """Assign partitions to every member; the result must depend on nothing but the arguments.

        kgroup calls it in a thread, one call at a time. If it runs for longer than the group's
        rebalance timeout, the member leaves the group.

        Args:
            topics: the existing topics to which the group's members subscribe.
            members: all members, sorted by member id.

        Returns:
            for each member id, its partitions; a member that is left out gets none.
        """
        ...


Headers = list[tuple[str, bytes | None]]
"""The headers of a record, in their order; a name can be there more than once."""


class Message(Protocol):
    """A record, with the methods by which ``confluent_kafka.Message`` reads one."""

    def topic(self) -> str:
        """The topic."""
        ...

    def partition(self) -> int:
        """The partition's number."""
        ...

    def offset(self) -> int:
        """The offset."""
        ...

    def key(self) -> bytes | None:
        """The key, or None."""
        ...

    def value(self) -> bytes | None:
        """The value, or None for a tombstone."""
        ...

    def headers(self) -> Headers | None:
        """A list of (name, value) pairs, or None."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970); kind 1 is create time, kind 2 is log append time."""
        ...


@final
@typed_init()
@attrs.frozen(kw_only=True)
class Batch:
    """Records of one partition, in the order of their offsets.

    ``for message in batch`` goes through the records and checks the lease before each one. So a
    process that was suspended in the middle of a batch gets no further record of it when it wakes.
    A planned end does not stop it: while the generation drains, a program may finish its batch.

    Any thread may iterate over a batch, any number of times; each iteration begins with the first
    record. ``next()`` of an iterator raises

    - ``LeaseExpiredError``, if the lease is over. The generation ends, unless that has begun;
    - ``StaleGenerationError``, if the generation is lost, or its drain is over.

    Both say how many records were not handed out. An iteration is no checkpoint, and a cancellation
    does not affect it. ``messages`` can always be read, whatever has become of the generation.

    A batch of a generation can be neither pickled nor copied by ``copy.deepcopy``; its ``messages``
    can. Batches are hashable, whatever their messages are.

    A batch that a program or a ``RecordSource`` makes itself knows of no lease: iterating over it
    is iterating over ``messages``. `Generation.records` returns it with the lease of its
    generation.

    Args:
        iterate: makes the iterators of the batch; by default those of ``messages``.
        seeks: how often the program had sought in the partition when it was given the batch; None
            if that is not known.
        next_epoch: if ``next_offset`` is past markers of transactions, the leader epoch of the last
            one; -1 if that is not known.

    Attributes:
        partition: the partition.
        messages: the records, at least one; a tuple, in batches of a generation.
        next_offset: the offset to commit once all records are processed: the last offset + 1, or
            after the markers of transactions that follow it, as far as they have been fetched.
        start_offset: the ``next_offset`` of the batch before it, or where the partition started or
            was sought. A store that keeps its own offsets can check with it that nothing is missing
            and nothing comes twice. The first record's offset can be larger, because logs have
            offsets without records. By default it is the first record's offset.
        epoch: the ``epoch`` of the generation for which they were fetched.
        high_watermark: the offset after the last record of the partition that is on all in-sync
            replicas, as the source last knew it; None if it did not. ``high_watermark -
            next_offset`` is the lag that is left after this batch: see `Generation.lag`.
    """

    partition: TopicPartition
    messages: Sequence[Message] = attrs.field(
        hash=False,  # librdkafka's are not hashable
        repr=lambda messages: f"<{len(messages)} messages>",
    )
    next_offset: int
    epoch: int
    start_offset: int = attrs.field(
        default=attrs.Factory(
            lambda batch: batch.messages[0].offset() if batch.messages else batch.next_offset,
            takes_self=True,
        )
    )
    high_watermark: int | None = None
    _iterate: Callable[[Batch], Iterator[Message]] | None = attrs.field(
        alias="iterate", default=None, eq=False, repr=False
    )
    _seeks: int | None = attrs.field(alias="seeks", default=None, eq=False, repr=False)
    _next_epoch: int = attrs.field(alias="next_epoch", default=-1, eq=False, repr=False)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages) if self._iterate is None else self._iterate(self)

    def __len__(self) -> int:
        return len(self.messages)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # A copy would hand records out without checking the lease.
        if self._iterate is not None:
            raise refused_copy(self, SEND_MESSAGES)
        return super().__reduce_ex__(protocol)

    def __copy__(self) -> Self:
        return self


Starts: TypeAlias = Mapping[TopicPartition, int | None]
"""For each partition the offset at which it starts; None, or no entry, if the store has none."""
LoadStarts: TypeAlias = Callable[[tuple[TopicPartition, ...]], Starts | Awaitable[Starts]]
"""The function of ``GroupConfig.starts``: where partitions start by the program's own store."""


class RecordSource(Protocol):
    """Fetches the records of one member, through all its generations.

    It knows nothing of the group protocol: each generation passes it the partitions, their start
    offsets and its epoch, and every batch carries that epoch.

    A member enters ``async with source:`` before all other calls. For each generation it calls
    ``assign`` once, then any of ``open``, ``receive``, ``pause``, ``resume`` and ``seek``, then
    ``revoke``, which must not raise after the source is closed.

    A source may also have a method ``prepare(topics)``. The member calls it when it is about to
    send a JoinGroup, with the topics to which it subscribes, so that the source can use the time of
    the join to get ready for them. It must return at once and fetch nothing. No call may rely on
    it: a generation can bring partitions of which no ``prepare`` has named the topic.

    It may have a method ``use_addresses(known)`` too. The member calls it once, before ``prepare``.
    ``known()`` returns the addresses of the brokers that the member knows by then, as ``host:port``
    and the bootstrap servers among them; any thread may call it. A source that opens connections
    later needs them where all brokers have got new addresses meanwhile.

    A method ``use_topic_ids(known)`` is called once, too. ``known()`` returns the ids of topics as
    the member knows them when it calls ``assign``: another one than before says that the topic was
    deleted and created again.

    From further optional members `Generation.lag` and metrics learn how far the source is. Any
    thread may use them, and they must return at once:

    - ``lag(epoch)``: for each partition of this generation the high watermark less the offset of
      the next record to hand out, or None if it is not known;
    - ``buffered``: a property, the number of records that were fetched and not handed out, and
      their bytes.
    """

    async def __aenter__(self) -> Self:
        """Start the source; it does not fetch yet.

        Cancellation: if the group is closed meanwhile; nothing is left open.
        """
        ...

    async def __aexit__(self, *details: object) -> None:
        """Stop fetching and join every thread.

        Cancellation: at the deadline of the group's closing; threads that still run are abandoned.
        """
        ...

    def assign(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = ...,
        added: Collection[TopicPartition] = ...,
    ) -> None:
        """Begin a generation, with its partitions and the offset at which each starts.

        Buffered records of a partition that was assigned before are kept only if the first of them
        has exactly the start offset, and the partition is not among ``added``. A partition is
        fetched only once ``open`` names it.

        Args:
            epoch: the generation's.
            positions: the offsets.
            leader_epochs: the leader epochs of the records before them, as far as they are known. A
                source may find out with them that a log was truncated there (KIP-320).
            added: the partitions that another member may have owned since the last ``assign``, or
                that had no owner. Nothing that is buffered of them may be handed out: their topics
                may have been deleted and created again, with other records at the same offsets.
        """
        ...

    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin to fetch these partitions; for another epoch than the assigned one, do nothing."""
        ...

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """Wait for the next batch of any of these opened partitions; all get their turn.

        A batch has at least one and at most ``limit`` records. Records leave the source only when
        this method returns, so that a cancelled call loses none.

        Raises:
            OffsetOutOfRangeError: a partition's position is outside its log; the error's
                ``partition`` names it, and ``divergent_offset`` where to continue if the log was
                truncated. The partition stays paused until ``seek``.
            FetchError: a partition cannot be read, and waiting does not help.
            AuthorizationError: the principal may not read a partition; later calls wait until it
                may.
        """
        ...

    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Return no batch of these partitions until ``resume``, from now on; no record is lost."""
        ...

    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Return batches of these partitions again."""
        ...

    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset; the partition's buffered records are dropped."""
        ...

    def revoke(self, epoch: int) -> None:
        """End a generation: no batch of it is returned any more.

        A waiting ``receive`` raises ``StaleGenerationError``. The source may keep the buffered
        records for the next ``assign``.
        """
        ...


@final
@attrs.frozen(kw_only=True)
class JoinResult:
    """A JoinGroup response.

    Attributes:
        member_id: the member's id from now on.
        generation_id: the coordinator's id of the generation.
        assignor: the name of the assignor that the group chose.
        leader: whether this member is the group's leader.
        skip_assignment: whether the leader must keep the existing assignment (KIP-814).
        members: if this member is the leader, all members of the group.
        leader_id: the leader's member id. Before JoinGroup v9, a static leader that has restarted
            gets the id that it had before the restart.
    """

    member_id: str
    generation_id: int
    assignor: str
    leader: bool
    skip_assignment: bool = False
    members: tuple[MemberSubscription, ...] = ()
    leader_id: str = ""


@final
@attrs.frozen(kw_only=True)
class DescribeResult:
    """A DescribeGroups response.

    Attributes:
        stable: whether the group is in the state Stable: all members have their assignments.
        members: the group's members with their subscriptions, sorted by member id.
        assignments: for each member id, its assignment; empty if its bytes cannot be read.
    """

    stable: bool
    members: tuple[MemberSubscription, ...] = ()
    assignments: MemberAssignments = attrs.field(factory=dict)


class Coordinator(Protocol):
    """The group's coordinator, as a member uses it; tests can replace the network by their own.

    ``kgroup.client.coordinator.CoordinatorClient`` implements it.

    Every method sends one request, which has a deadline. It raises ``BrokerError`` if the response
    has an error code, and ``TransportError`` if there is no valid response. No method retries: the
    error policy decides what follows. A cancelled call breaks the connection that it used.
    """

    async def find(self) -> None:
        """Look up the coordinator (FindCoordinator), and send later requests to it."""
        ...

    async def join(
        self, member_id: str, topics: Collection[str], reason: str, claim: Claim | None = None
    ) -> JoinResult:
        """JoinGroup: the coordinator responds once all members of the group have joined.

        Args:
            member_id: the member's id, or empty if it has none.
            topics: the topics that it subscribes to.
            reason: why it joins, for the broker's log.
            claim: its last assignment, which its assignors may report to the leader.

        Raises:
            MemberIdRequiredError: the coordinator assigned an id with which to join again.
        """
        ...

    async def sync(
        self, membership: Membership, assignments: MemberAssignments
    ) -> Sequence[TopicPartition]:
        """SyncGroup: the leader sends all assignments, and each member receives its own."""
        ...

    async def describe(self) -> DescribeResult:
        """DescribeGroups: the members and their assignments."""
        ...

    async def heartbeat(self, membership: Membership) -> float:
        """Heartbeat; returns how many seconds the broker throttles this client."""
        ...

    async def leave(self, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """LeaveGroup; on a connection of its own if requests are in flight on the others."""
        ...

    async def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_sent: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> Mapping[TopicPartition, int]:
        """OffsetCommit; returns each partition's error code, which is 0 if it was committed.

        Args:
            membership: the member and its generation.
            offsets: the offsets to commit.
            on_sent: called when bytes of the request are passed to the network; from then on the
                broker may apply it.
            on_lost: called after that if the connection was found closed, so that no response can
                come; then the request is sent once more, on another connection.
        """
        ...

    async def fetch_offsets(
        self, membership: Membership, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """OffsetFetch, of stable offsets; None for a partition without a committed offset."""
        ...


Task = Callable[..., Awaitable[object]]
"""An async function, as ``start_soon`` takes it."""
