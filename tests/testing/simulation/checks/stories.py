"""Hand-written histories: what happens to one group, step by step.

Each method adds the entries of one step, as a simulation would see them; its arguments are what a
test wants to be different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from kgroup.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    HeartbeatCompleted,
    JoinCompleted,
    LeaveCompleted,
    LeftMember,
    OffsetsCommitted,
    PartitionResult,
    SyncCompleted,
)
from kgroup.error_codes import ErrorCode
from kgroup.events import (
    Assigned,
    CommitRefused,
    Committed,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    Joining,
)
from kgroup.testing.simulation.checks import Check, check
from kgroup.testing.simulation.history import (
    Appended,
    CoordinatorMoved,
    EventReported,
    FinalGroupState,
    GroupChanged,
    GroupOpened,
    HandedOut,
    HistoryEntry,
    MemberSnapshot,
    ParkedRequestAnswered,
    Processed,
    ProcessEnded,
    ProcessStarted,
    RequestHandled,
    SeekCalled,
    SimulationEnded,
    TopicChanged,
    TransactionEnded,
    WorkloadEnded,
)
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.plan import Plan
from kgroup.types import Assignment, Cause, End, TopicPartition
from kgroup.wire.consumer_protocol import encode_subscription

GROUP: Final = "group"
PRODUCER: Final = 7
"""The producer of transactions that commit offsets."""
SESSION: Final = 10.0
REBALANCE: Final = 20.0
DRAIN: Final = 8.0
REQUEST: Final = 5.0
P0: Final = TopicPartition("orders", 0)
P1: Final = TopicPartition("orders", 1)

PLAN: Final = Plan(
    seed=0,
    duration=100.0,
    brokers=2,
    topics={"orders": 2},
    members=(),
    config={"session_timeout": SESSION, "rebalance_timeout": REBALANCE},
    broker_settings={"group.initial.rebalance.delay.ms": 0},
    latency=Latency(),
    records_every=1.0,
    records_at_once=1,
    work=(0.0, 0.0),
    faults=(),
)

_STEP: Final = 0.001

Owners = Mapping[str, Sequence[TopicPartition]]


def id_of(process: str) -> str:
    """The member id of a process, unless a story gives it another."""
    return f"{process}-id"


@final
class Story:
    """The history so far. Every step takes a millisecond of virtual time."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.plan = plan
        self.history: list[HistoryEntry] = []
        self.at = 1.0
        self.node_id = 1
        self.incarnation = 0
        self.auto_offset_reset = "earliest"
        self.isolation_level = "read_uncommitted"
        self.own_starts = False
        self.generation_id = 0
        self.owners: Owners = {}
        self.ids: dict[str, str] = {}
        self.assignor = "range"
        self.instances: dict[str, str] = {}
        self.claims: dict[str, Sequence[TopicPartition]] = {}
        """What a process names as owned when it joins, where that is not what it was given last."""
        self.committed: dict[TopicPartition, int] = {}
        self.epochs: Counter[str] = Counter()
        self.creation = 1
        self.tickets = 0

    def broken(self, kind: type[Check]) -> list[str]:
        """The violations of one invariant."""
        found = list(check(self.plan, self.history, [kind]))
        assert {one.number for one in found} <= {kind.number}
        return [one.what for one in found]

    def record(self, kind: Callable[..., HistoryEntry], **fields: Any) -> None:
        """Append an entry."""
        self.at += _STEP
        self.history.append(kind(at=self.at, **fields))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.at += seconds

    def at_once(self) -> None:
        """Give the next entry the same time as the last."""
        self.at -= _STEP

    def live(self, *processes: str, seconds: float) -> None:
        """Let time pass with heartbeats of these processes."""
        for _ in range(int(seconds)):
            self.wait(1.0)
            for process in processes:
                self.heartbeat(process)

    # The world.

    def begin(self, *processes: str, partitions: int = 2) -> Story:
        """Create a topic and start processes."""
        self.record(TopicChanged, topic="orders", partitions=partitions)
        for process in processes:
            self.record(
                ProcessStarted,
                process=process,
                life=1,
                group_instance_id=self.instances.get(process),
            )
            self.open(process)
        return self

    def open(self, process: str) -> None:
        """A process opens the group."""
        self.record(
            GroupOpened,
            process=process,
            life=1,
            group_id=GROUP,
            auto_offset_reset=self.auto_offset_reset,
            drain_timeout=DRAIN,
            heartbeat_interval=1.0,
            partition_watch_interval=5.0,
            rebalance_timeout=REBALANCE,
            request_timeout=REQUEST,
            isolation_level=self.isolation_level,
            own_starts=self.own_starts,
        )

    def delete(self) -> None:
        """Delete the topic and its commits."""
        self.committed = {}
        self.record(TopicChanged, topic="orders", partitions=0, creation=self.creation)

    def create_again(self, partitions: int = 2) -> None:
        """Create the topic again."""
        self.creation += 1
        self.record(TopicChanged, topic="orders", partitions=partitions, creation=self.creation)

    def append(self, partition: TopicPartition, first: int, upto: int) -> None:
        """Write records."""
        self.record(Appended, partition=partition, first=first, next_offset=upto)

    def end_workload(self) -> None:
        """All faults are over."""
        self.record(WorkloadEnded, running=tuple(self.owners))

    def settle(self, ends: Mapping[TopicPartition, int], *, stable: bool = True) -> None:
        """Record the final state."""
        self.record(
            FinalGroupState,
            group_id=GROUP,
            stable=stable,
            committed=dict(self.committed),
            ends=dict(ends),
        )

    def move(self, committed: Mapping[TopicPartition, int] | None = None) -> None:
        """The group gets another coordinator."""
        self.node_id, self.incarnation = 3 - self.node_id, self.incarnation + 1
        found = self.committed if committed is None else committed
        self.record(
            CoordinatorMoved,
            node_id=self.node_id,
            incarnation=self.incarnation,
            group_id=GROUP,
            committed=dict(found),
        )

    # The coordinator.

    def id_of(self, process: str) -> str:
        """The member id that a process has now."""
        return self.ids.get(process, id_of(process))

    def group(
        self, state: str, owners: Owners | None = None, *, topics: Mapping[str, int] | None = None
    ) -> None:
        """Record the group; by default with the members that it had."""
        self.owners = self.owners if owners is None else owners
        members = tuple(
            MemberSnapshot(
                member_id=self.id_of(process),
                process=process,
                group_instance_id=self.instances.get(process),
                assignment=tuple(partitions),
            )
            for process, partitions in self.owners.items()
        )
        self.record(
            GroupChanged,
            node_id=self.node_id,
            incarnation=self.incarnation,
            group_id=GROUP,
            state=state,
            generation_id=self.generation_id,
            leader=members[0].member_id if members else None,
            members=members,
            assigned=state == "Stable",
            topics={"orders": 2} if topics is None else topics,
            assignor=self.assignor,
        )

    def handle(
        self, api: str, process: str, request: object, response: object, ticket: int = -1
    ) -> None:
        """A coordinator handles a request."""
        self.record(
            RequestHandled,
            node_id=self.node_id,
            incarnation=self.incarnation,
            api=api,
            ticket=ticket,
            process=process,
            request=request,
            response=response,
            state="Stable",
            group_generation_id=self.generation_id,
            is_member=True,
        )

    def park_join(self, process: str, *, known: bool = True) -> int:
        """A JoinGroup is parked; returns its ticket."""
        self.tickets += 1
        request = JoinGroup(
            group_id=GROUP,
            version=9,
            client_id=process,
            client_host=process,
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            member_id=self.id_of(process) if known else "",
            group_instance_id=self.instances.get(process),
            protocols=(self._protocol(process),),
        )
        self.handle("join_group", process, request, None, self.tickets)
        return self.tickets

    def _protocol(self, process: str) -> Protocol:
        owned = self.claims.get(process, self.owners.get(process, ()))
        metadata = encode_subscription(topics=[P0.topic], owned=owned, version=1)
        return Protocol(name=self.assignor, metadata=metadata)

    def answer_join(self, ticket: int, process: str) -> None:
        """A parked JoinGroup is answered without an error."""
        response = JoinCompleted(generation_id=self.generation_id, member_id=self.id_of(process))
        self.answer(ticket, response)

    def answer(self, ticket: int, response: object) -> None:
        """A parked request is answered."""
        self.record(ParkedRequestAnswered, node_id=self.node_id, ticket=ticket, response=response)

    def sync(self, process: str, response: SyncCompleted | None, ticket: int = -1) -> None:
        """A SyncGroup arrives."""
        request = SyncGroup(
            group_id=GROUP,
            version=5,
            generation_id=self.generation_id,
            member_id=self.id_of(process),
        )
        self.handle("sync_group", process, request, response, ticket)

    def heartbeat(self, process: str, error: ErrorCode = ErrorCode.NONE) -> None:
        """A heartbeat is answered."""
        request = Heartbeat(
            group_id=GROUP, generation_id=self.generation_id, member_id=self.id_of(process)
        )
        self.handle("heartbeat", process, request, HeartbeatCompleted(error=error))

    def leave(self, process: str) -> None:
        """A member leaves."""
        name = self.id_of(process)
        request = LeaveGroup(group_id=GROUP, version=5, members=(LeavingMember(member_id=name),))
        response = LeaveCompleted(members=(LeftMember(member_id=name, group_instance_id=None),))
        self.handle("leave_group", process, request, response)

    def send_commit(
        self,
        process: str,
        partition: TopicPartition,
        offset: int,
        *,
        error: ErrorCode = ErrorCode.NONE,
        generation_id: int | None = None,
        instance: str | None = None,
    ) -> None:
        """An OffsetCommit is answered; its program has not received the response yet."""
        request = OffsetCommit(
            group_id=GROUP,
            version=9,
            generation_id=self.generation_id if generation_id is None else generation_id,
            member_id=self.id_of(process),
            group_instance_id=instance,
            offsets=(
                OffsetToCommit(topic=partition.topic, partition=partition.partition, offset=offset),
            ),
        )
        self.handle("offset_commit", process, request, _committed(partition, error))
        if error is ErrorCode.NONE:
            self.committed[partition] = offset

    def add_to_transaction(
        self,
        process: str,
        partition: TopicPartition,
        offset: int,
        *,
        error: ErrorCode = ErrorCode.NONE,
        epoch: int = 0,
        generation_id: int | None = None,
        instance: str | None = None,
    ) -> None:
        """A TxnOffsetCommit is answered; without a process, it names no member."""
        request = TxnOffsetCommit(
            group_id=GROUP,
            version=3,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            generation_id=self.generation_id if generation_id is None else generation_id,
            member_id=self.id_of(process) if process else "",
            group_instance_id=instance,
            offsets=(
                OffsetToCommit(topic=partition.topic, partition=partition.partition, offset=offset),
            ),
        )
        self.handle("txn_offset_commit", process, request, _committed(partition, error))

    def end_transaction(self, *, committed: bool) -> None:
        """The transaction of the offsets ends; it has no records."""
        self.record(TransactionEnded, producer_id=PRODUCER, committed=committed, markers=())

    # The programs.

    def emit(self, process: str, kind: Callable[..., Any], **fields: Any) -> None:
        """kgroup reports an event in a program."""
        event = kind(
            group_id=GROUP,
            member_id=self.id_of(process),
            generation_id=fields.pop("generation_id", self.generation_id),
            epoch=fields.pop("epoch", self.epochs[process]),
            **fields,
        )
        self.record(EventReported, process=process, life=1, event=event)

    def report_joined(self, process: str) -> None:
        """A program reports that it has joined the generation."""
        self.epochs[process] += 1
        self.emit(process, Joined, leader=False, assignor="range", members=0)

    def report_assigned(
        self,
        process: str,
        partitions: Sequence[TopicPartition] | None = None,
        start_offsets: Mapping[TopicPartition, int] | None = None,
        *,
        previous: Sequence[TopicPartition] = (),
    ) -> None:
        """A program reports its partitions and gets its generation."""
        own = self.owners[process] if partitions is None else partitions
        starts = (
            {one: self.committed.get(one, 0) for one in own}
            if start_offsets is None
            else start_offsets
        )
        assignment = Assignment(tuple(own), previous)
        self.emit(process, Assigned, assignment=assignment, start_offsets=starts)
        self.emit(process, GenerationStarted)

    def end(
        self,
        process: str,
        cause: Cause = Cause.REBALANCE,
        *,
        cut_short: bool = False,
        took: float = 0.0,
    ) -> None:
        """A program's generation drains, for at most a second, and ends."""
        if cause.can_commit:
            self.emit(process, GenerationDraining, end=End(cause), seconds=1.0)
            self.wait(took)
        self.emit(process, GenerationEnded, end=End(cause), cut_short=cut_short)

    def joining(self, process: str) -> None:
        """A program begins to join."""
        self.emit(process, Joining, reason="", epoch=0, generation_id=-1)

    def stop(self, process: str) -> None:
        """A program ends."""
        self.record(ProcessEnded, process=process, life=1, error=None)

    def hand_out(
        self,
        process: str,
        partition: TopicPartition,
        first: int,
        upto: int,
        *,
        creation: int | None = None,
        misplaced: tuple[int, ...] = (),
    ) -> None:
        """A program gets records, by default of the current creation of the topic."""
        self.record(
            HandedOut,
            process=process,
            life=1,
            group_id=GROUP,
            member_id=self.id_of(process),
            generation_id=self.generation_id,
            epoch=self.epochs[process],
            partition=partition,
            first=first,
            next_offset=upto,
            misplaced=misplaced,
            creation=self.creation if creation is None else creation,
        )

    def process(
        self,
        process: str,
        partition: TopicPartition,
        first: int,
        upto: int,
        *,
        creation: int | None = None,
    ) -> None:
        """A program processes records."""
        for offset in range(first, upto):
            self.record(
                Processed,
                process=process,
                life=1,
                partition=partition,
                offset=offset,
                creation=self.creation if creation is None else creation,
                group_id=GROUP,
            )

    def commit(self, process: str, partition: TopicPartition, offset: int) -> None:
        """A program commits and gets the response."""
        self.send_commit(process, partition, offset)
        self.emit(process, Committed, offsets={partition: offset})

    def give_up_commit(self, process: str, partition: TopicPartition, offset: int) -> None:
        """A program's commit got no answer."""
        offsets = {partition: offset}
        self.emit(process, CommitRefused, offsets=offsets, reason="no response", stale=False)

    def seek(self, process: str, offset: int, partition: TopicPartition = P0) -> None:
        """The program of a process seeks in its generation."""
        self.record(
            SeekCalled,
            process=process,
            life=1,
            group_id=GROUP,
            epoch=self.epochs[process],
            partition=partition,
            offset=offset,
        )

    # Longer steps.

    def work(self, process: str, partition: TopicPartition, first: int, upto: int) -> None:
        """A program gets records, processes them and commits."""
        self.hand_out(process, partition, first, upto)
        self.process(process, partition, first, upto)
        self.commit(process, partition, upto)

    def form(self, owners: Owners) -> None:
        """All members join and the next generation completes, but no program knows it yet."""
        tickets = {}
        for process in owners:
            tickets[process] = self.park_join(process)
            self.at_once()
            self.group("PreparingRebalance", {**self.owners, process: self.owners.get(process, ())})
        self.generation_id += 1
        for process, ticket in tickets.items():
            self.answer_join(ticket, process)
        self.group("CompletingRebalance", {name: self.owners[name] for name in owners})
        for process in owners:
            self.report_joined(process)
            self.sync(process, SyncCompleted())
        self.group("Stable", owners)

    def rebalance(self, owners: Owners) -> None:
        """As `form`, and the programs receive their partitions."""
        self.form(owners)
        for process in owners:
            self.report_assigned(process)

    def finish(self) -> None:
        """Every program ends, and its member leaves."""
        for process in list(self.owners):
            self.end(process, Cause.CLOSED)
            self.leave(process)
            self.stop(process)
        self.record(SimulationEnded)


def pair() -> Story:
    """Two members in generation 1: a owns partition 0, b owns partition 1."""
    story = Story().begin("a", "b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def replaced(plan: Plan = PLAN) -> Story:
    """a is a static member, and its twin has taken its instance id."""
    story = Story(plan)
    story.instances = {"a": "one"}
    story.begin("a")
    story.rebalance({"a": [P0, P1]})
    story.instances["twin"] = "one"
    ticket = story.park_join("twin", known=False)
    story.answer_join(ticket, "twin")
    story.at_once()
    story.group("Stable", {"twin": [P0, P1]})
    story.report_joined("twin")
    story.report_assigned("twin")
    return story


def complete() -> Story:
    """A story in which every invariant holds: work, a hand-over, a failover, and a clean end."""
    story = pair()
    story.append(P0, 0, 10)
    story.append(P1, 0, 10)
    story.work("a", P0, 0, 6)
    story.work("b", P1, 0, 4)
    story.end("a")
    story.joining("a")
    story.end("b")
    story.joining("b")
    story.rebalance({"a": [P1], "b": [P0]})
    story.move()
    story.group("Stable")
    story.work("a", P1, 4, 10)
    story.work("b", P0, 6, 10)
    story.end_workload()
    story.settle({P0: 10, P1: 10})
    story.finish()
    return story


def _committed(partition: TopicPartition, error: ErrorCode) -> OffsetsCommitted:
    result = PartitionResult(topic=partition.topic, partition=partition.partition, error=error)
    return OffsetsCommitted(partitions=(result,))
