"""What the floors above implement, and what a user can put in their place.

Only protocols and the values that pass through them: no I/O, nothing that runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol, Self, TypeVar, final, runtime_checkable

import attrs
import trio

from kgroup.types import (
    Claim,
    MemberAssignments,
    Membership,
    MemberSubscription,
    OffsetAndMetadata,
    TopicInfo,
    TopicPartition,
)

T = TypeVar("T")


class Clock(Protocol):
    """Seconds that only go forward and count the time in which a machine was suspended."""

    def now(self) -> float:
        """The time in seconds; only differences mean anything."""
        ...


class Random(Protocol):
    """The one source of random choices; ``random.Random`` is one."""

    def random(self) -> float:
        """A float from 0 up to, not including, 1."""
        ...

    def getrandbits(self, bits: int, /) -> int:
        """A whole number of that many random bits."""
        ...


class StreamOpener(Protocol):
    """Opens a byte stream to a broker: TCP, TLS, or memory in tests."""

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Open a stream to an address.

        Raises:
            OSError: there is no connection.

        Cancellation: nothing is left open.
        """
        ...


class Compute(Protocol):
    """Does what may take long, and has no pauses, so that the event loop does not stand still."""

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """Call a function, after those that were asked for before.

        Args:
            work: takes nothing; what it returns or raises comes back.
            name: of the thread, for whoever looks at what the process does.

        Cancellation: at once; the function may go on, and nobody is told how it ends.
        """
        ...


@runtime_checkable
class Assignor(Protocol):
    """Divides the partitions of the group's topics among its members, in the leader.

    It may also have, each looked for by name:

    - ``user_data(owned, generation_id) -> bytes | None``: what a member sends along when it joins,
      for the leader to find in ``MemberSubscription.user_data``; ``owned`` are the partitions that
      it was assigned last, None if it never was. The same arguments must give the same bytes: a
      member that says something else starts a rebalance.
    - ``on_assignment(partitions, generation_id)``: is called in each member that was assigned
      partitions by this assignor, before its generation is handed over; it must not block.
    - ``cooperative``, True where a partition that changes owners is first given to nobody, so that
      its owner can give it up (KIP-429). It counts if all assignors that the member offers have
      it: what the member owned is then in ``MemberSubscription.owned``.

    Source: Kafka's ``ConsumerPartitionAssignor``.
    """

    @property
    def name(self) -> str:
        """The name that members agree on (``protocol_name``)."""
        ...

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> MemberAssignments:
        """Give every member its partitions; pure, and the same for the same input.

        It is called in a thread, once at a time, and has until the group's rebalance time-out;
        then the member gives up, and leaves the group.

        Args:
            topics: those topics of the group's subscriptions that exist.
            members: all members, sorted by member id.

        Returns:
            for each member id its partitions; a member left out gets none.
        """
        ...


class Message(Protocol):
    """A record as handlers see it: the reading half of ``confluent_kafka.Message``."""

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

    def headers(self) -> object:
        """A list of (name, value) pairs, or None."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970): kind 1 is create time, 2 is log append time."""
        ...


@final
@attrs.frozen(kw_only=True)
class Batch:
    """Records of one partition, in the order of their offsets.

    Attributes:
        partition: whose records they are.
        messages: at least one.
        next_offset: what to commit when all of them are handled: the offset of the last + 1.
        epoch: the generation (its ``epoch``) that they were fetched for.
    """

    partition: TopicPartition
    messages: Sequence[Message] = attrs.field(repr=lambda messages: f"<{len(messages)} messages>")
    next_offset: int
    epoch: int

    def __len__(self) -> int:
        return len(self.messages)


class RecordSource(Protocol):
    """Fetches records for one member; lives as long as the member, through its generations.

    It knows nothing of the group protocol: it is told what to read from where, and under which
    epoch. Everything it hands out carries that epoch.

    Life: ``async with source:`` around all else. For each generation ``assign`` once, then
    ``open``/``receive``/``pause``/``resume``/``seek``; then ``revoke``. A closed source raises
    nothing from ``revoke``.
    """

    async def __aenter__(self) -> Self:
        """Make it ready; no partition is read yet.

        Cancellation: at any time, by a group that is closed meanwhile; nothing is left open.
        """
        ...

    async def __aexit__(self, *details: object) -> None:
        """Stop fetching and join every thread, within a deadline.

        Cancellation: by the deadline of the group's closing, a second after the rest of it; what
        still runs then is left behind.
        """
        ...

    def assign(self, epoch: int, positions: Mapping[TopicPartition, int]) -> None:
        """Begin a generation: its partitions and the offset at which each starts.

        Fetched records of a partition that was assigned before are kept only if the next
        undelivered one has exactly the offset given here. A partition is fetched from the
        time that ``open`` names it.
        """
        ...

    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin to fetch these partitions. Of another epoch than the assigned one: nothing."""
        ...

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """Wait for the next batch of any of these opened partitions, fairly over them.

        A batch has at least one and at most ``limit`` records.

        Records leave the source when this returns and not before: a call that is cancelled
        loses none.

        Raises:
            OffsetOutOfRangeError: a partition's position is outside of its log; its
                ``partition`` attribute names it. It stays paused there until ``seek``.
            FetchError: a partition cannot be read and waiting will not help.
        """
        ...

    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until ``resume``; nothing is lost."""
        ...

    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        ...

    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset; what was fetched of the partition and not handed out is dropped."""
        ...

    def revoke(self, epoch: int) -> None:
        """End a generation: nothing of it is handed out from now on.

        A ``receive`` that waits is woken and raises ``StaleGenerationError``. What was fetched
        and not handed out may be kept for the next ``assign``.
        """
        ...


@final
@attrs.frozen(kw_only=True)
class JoinResult:
    """A JoinGroup answer: the membership and, for a leader, who is there.

    Attributes:
        member_id: the member's id from now on.
        generation_id: the coordinator's id of the generation.
        assignor: the name of the assignor that the group chose.
        leader: whether this member is the group's leader.
        skip_assignment: whether the leader has to leave the assignment as it is (KIP-814).
        members: for a leader, who is in the group.
        leader_id: the leader's id. A broker before JoinGroup v9 gives a static leader that came
            back the id that it had before.
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
    """What a coordinator says about its group.

    Attributes:
        stable: whether every member has its assignment and no rebalance is under way.
        members: who is in it, sorted by member id, each with the topics that it subscribes to.
        assignments: for each member id what the leader gave it; nothing where its bytes cannot
            be read.
    """

    stable: bool
    members: tuple[MemberSubscription, ...] = ()
    assignments: MemberAssignments = attrs.field(factory=dict)


class Coordinator(Protocol):
    """The group's coordinator as a member sees it; the network stands behind it, or a test.

    Every call is one request, with its deadline; all of them raise ``BrokerError`` for an error
    in the answer and ``TransportError`` where there was none. None of them retries: what to
    do next is the recovery table's to say. A call cancelled midway breaks its connection.
    """

    async def find(self) -> None:
        """Ask for the coordinator's address and use it from now on."""
        ...

    async def join(
        self, member_id: str, topics: Collection[str], reason: str, claim: Claim | None = None
    ) -> JoinResult:
        """JoinGroup: parked by the coordinator until the group is complete.

        Args:
            member_id: the member's, or empty.
            topics: what it subscribes to.
            reason: for the broker's log.
            claim: what it was assigned last, for its assignors to tell of.

        Raises:
            MemberIdRequiredError: the coordinator gave an id to join again with.
        """
        ...

    async def sync(
        self, membership: Membership, assignments: MemberAssignments
    ) -> Sequence[TopicPartition]:
        """SyncGroup: the leader gives all assignments, each member gets its own."""
        ...

    async def describe(self) -> DescribeResult:
        """DescribeGroups: who is in the group, and what each member was assigned."""
        ...

    async def heartbeat(self, membership: Membership) -> float:
        """Heartbeat; returns the seconds for which the broker asks not to be asked again."""
        ...

    async def leave(self, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """LeaveGroup, on a connection of its own."""
        ...

    async def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_sent: Callable[[], None],
    ) -> Mapping[TopicPartition, int]:
        """OffsetCommit; for each partition the error code of its answer, 0 where it was applied."""
        ...

    async def fetch_offsets(
        self, membership: Membership, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """OffsetFetch of stable offsets; None where none is committed."""
        ...


Task = Callable[..., Awaitable[object]]
"""What ``start_soon`` takes: an async function."""
