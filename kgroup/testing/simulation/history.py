"""The history of a simulation: everything that was recorded, in the order in which it happened.

The checks, the trace and the timeline are all made from these entries. ``at`` is in virtual seconds
since the simulation began. ``process`` is the name of a member's program, such as "m1", and
``life`` says which start of the program it is, from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from kgroup.events import Event
from kgroup.testing.simulation.faults import Fault
from kgroup.types import TopicPartition


@attrs.frozen(kw_only=True)
class HistoryEntry:
    """The base class of all entries."""

    at: float


# Programs.


@final
@attrs.frozen(kw_only=True)
class ProcessStarted(HistoryEntry):
    """A member's program was started; ``group_instance_id`` is set for a static member."""

    process: str
    life: int
    group_instance_id: str | None


@final
@attrs.frozen(kw_only=True)
class GroupOpened(HistoryEntry):
    """A program opened a group with these settings; see ``GroupConfig``."""

    process: str
    life: int
    group_id: str
    auto_offset_reset: str
    drain_timeout: float
    heartbeat_interval: float
    partition_watch_interval: float
    rebalance_timeout: float
    request_timeout: float
    isolation_level: str = "read_uncommitted"
    own_starts: bool = False


@final
@attrs.frozen(kw_only=True)
class ProcessEnded(HistoryEntry):
    """A program ended by itself or because it was asked to.

    Attributes:
        process: the program.
        life: its start.
        error: the error it raised, or None.
        assertion: the first failed assertion in that error, with its place, or None.
        is_own_error: whether the program itself causes the error, and no fault of the plan.
        is_refusal: whether it is an own error in which kgroup says what the program does wrong.
        traceback: that assertion or own error as Python prints it, or None.
    """

    process: str
    life: int
    error: str | None
    assertion: str | None = None
    is_own_error: bool = False
    is_refusal: bool = False
    traceback: str | None = attrs.field(default=None, repr=False)


@final
@attrs.frozen(kw_only=True)
class ProcessCrashed(HistoryEntry):
    """A program was killed; what its tasks do afterwards is not recorded."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class ProcessFrozen(HistoryEntry):
    """A program was frozen: none of its tasks runs and none of its bytes moves."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class ProcessThawed(HistoryEntry):
    """A frozen program continued."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class EventReported(HistoryEntry):
    """kgroup reported an event in this process."""

    process: str
    life: int
    event: Event


@final
@attrs.frozen(kw_only=True)
class HandedOut(HistoryEntry):
    """A handler got a batch: the records from ``first`` to before ``next_offset``.

    Attributes:
        left_out: the offsets between the two that are not in the batch.
        misplaced: the offsets in the batch that are not after all those before them.
        creation: the creation of the topic that the records belong to.
    """

    process: str
    life: int
    group_id: str
    member_id: str
    generation_id: int
    epoch: int
    partition: TopicPartition
    first: int
    next_offset: int
    left_out: tuple[int, ...] = ()
    misplaced: tuple[int, ...] = attrs.field(default=(), repr=False)
    creation: int = 1


@final
@attrs.frozen(kw_only=True)
class SeekCalled(HistoryEntry):
    """A program called ``Generation.seek``."""

    process: str
    life: int
    group_id: str
    epoch: int
    partition: TopicPartition
    offset: int


@final
@attrs.frozen(kw_only=True)
class RecordsSkipped(HistoryEntry):
    """The program reported that it skips the records before ``offset`` on purpose.

    Attributes:
        group_id: the group that does not read them; empty if none was assigned the partition.
    """

    process: str
    life: int
    partition: TopicPartition
    offset: int
    group_id: str = ""


@final
@attrs.frozen(kw_only=True)
class Processed(HistoryEntry):
    """The program reported that it has processed a record.

    Attributes:
        creation: the creation of the topic that the record belongs to.
        group_id: the group that has read it; empty if it is none of kgroup's.
    """

    process: str
    life: int
    partition: TopicPartition
    offset: int
    creation: int = 1
    group_id: str = ""


# Coordinators.


@final
@attrs.frozen(kw_only=True)
class RequestHandled(HistoryEntry):
    """A coordinator answered a request at once or parked it (``response`` is None then).

    Attributes:
        node_id: the coordinator's broker.
        incarnation: how often the group was loaded, by any broker.
        api: "join_group", "sync_group", "heartbeat", "leave_group", "offset_commit",
            "offset_fetch", and so on.
        ticket: identifies a parked request; see ``ParkedRequestAnswered``.
        process: the program that sent the request; empty if it is unknown.
        request: the request, as the coordinator's value.
        response: the response, or None while the request is parked.
        state: the group's state afterwards.
        group_generation_id: the group's generation afterwards.
        is_member: whether the member that sent the request is a member afterwards.
    """

    node_id: int
    incarnation: int
    api: str
    ticket: int
    process: str
    request: object
    response: object | None
    state: str
    group_generation_id: int
    is_member: bool


@final
@attrs.frozen(kw_only=True)
class ParkedRequestAnswered(HistoryEntry):
    """A parked request was answered."""

    node_id: int
    ticket: int
    response: object


@final
@attrs.frozen(kw_only=True)
class MemberSnapshot:
    """A member as the coordinator knows it."""

    member_id: str
    process: str
    group_instance_id: str | None
    assignment: tuple[TopicPartition, ...]


@final
@attrs.frozen(kw_only=True)
class GroupChanged(HistoryEntry):
    """The state, the generation or the members of a group changed.

    Attributes:
        assigned: whether the members' assignments are those of this generation.
        topics: the topics that its members subscribe to, each with its number of partitions.
        assignor: the assignor that the group has chosen, or None.
    """

    node_id: int
    incarnation: int
    group_id: str
    state: str
    generation_id: int
    leader: str | None
    members: tuple[MemberSnapshot, ...]
    assigned: bool
    topics: Mapping[str, int]
    assignor: str | None = None


@final
@attrs.frozen(kw_only=True)
class CoordinatorMoved(HistoryEntry):
    """A coordinator loaded a group from what the previous coordinator had written."""

    node_id: int
    incarnation: int
    group_id: str
    committed: Mapping[TopicPartition, int]


# The group protocols that Kafka had before; see ``schemes``.


@final
@attrs.frozen(kw_only=True)
class PartitionsTaken(HistoryEntry):
    """A program began to read these partitions, and no others, at these offsets."""

    process: str
    life: int
    starts: Mapping[TopicPartition, int]


@final
@attrs.frozen(kw_only=True)
class PartitionsGivenUp(HistoryEntry):
    """A program stopped to read: from now on its partitions may have another owner."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class OffsetStored(HistoryEntry):
    """ZooKeeper stored an offset; it does not ask who owns the partition."""

    process: str
    partition: TopicPartition
    offset: int


@final
@attrs.frozen(kw_only=True)
class CoordinationMessages(HistoryEntry):
    """Messages of a group protocol, all of one kind.

    Attributes:
        process: the member that sent or received them; for a coordinator, its broker.
        what: "notification" (a watch that fired, or a coordinator's command), "read", "write",
            or "answer" to a command.
        count: how many there were.
        about: the path in ZooKeeper, or the command.
    """

    process: str
    what: str
    count: int
    about: str


# Faults, records and topics.


@final
@attrs.frozen(kw_only=True)
class FaultBegan(HistoryEntry):
    """A fault of the plan was injected.

    Attributes:
        members: the states of the members that it affects.
        coordinator: the state of their group at its coordinator.
    """

    fault: Fault
    members: tuple[str, ...] = ()
    coordinator: str = ""


@final
@attrs.frozen(kw_only=True)
class FaultEnded(HistoryEntry):
    """The effect of a fault ended."""

    fault: Fault


@final
@attrs.frozen(kw_only=True)
class Appended(HistoryEntry):
    """Records were written, from ``first`` to before ``next_offset``.

    Attributes:
        producer_id: the producer whose open transaction they belong to, or None.
    """

    partition: TopicPartition
    first: int
    next_offset: int
    producer_id: int | None = None


@final
@attrs.frozen(kw_only=True)
class TransactionEnded(HistoryEntry):
    """A transaction was committed or aborted, by its producer or on its time-out.

    Attributes:
        producer_id: the producer.
        committed: whether it was committed.
        markers: for each partition of the transaction the offset of its marker.
    """

    producer_id: int
    committed: bool
    markers: tuple[tuple[TopicPartition, int], ...]


@final
@attrs.frozen(kw_only=True)
class TopicChanged(HistoryEntry):
    """A topic was created, extended or deleted (``partitions`` is 0 then).

    Attributes:
        creation: how often a topic of this name was created.
    """

    topic: str
    partitions: int
    creation: int = 1


@final
@attrs.frozen(kw_only=True)
class WorkloadEnded(HistoryEntry):
    """All faults are over and all records are written; ``running`` names the programs that run."""

    running: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class FinalGroupState(HistoryEntry):
    """A group at the end, before the programs are asked to stop.

    Attributes:
        group_id: the group.
        stable: whether every group is stable or empty.
        committed: for each partition the committed offset.
        ends: for each partition the end offset of its log.
    """

    group_id: str
    stable: bool
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@final
@attrs.frozen(kw_only=True)
class SimulationEnded(HistoryEntry):
    """All programs have ended."""
