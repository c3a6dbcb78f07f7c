"""What is seen in a simulation: values in the order in which things happened.

Checks are made from them, and so are the trace and the timeline. Nothing here judges.
``at`` is always virtual seconds since the simulation began; ``process`` the name of a member's
program ("m1"), whose every start is another ``life``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from kgroup.events import Event
from kgroup.testing.simulation.faults import Fault
from kgroup.types import TopicPartition


@attrs.frozen(kw_only=True)
class Fact:
    """The root of all facts."""

    at: float


# What the programs do.


@final
@attrs.frozen(kw_only=True)
class ProcessStarted(Fact):
    """A member's program begins; ``group_instance_id`` where it is a static member."""

    process: str
    life: int
    group_instance_id: str | None


@final
@attrs.frozen(kw_only=True)
class GroupOpened(Fact):
    """A program has entered a group, with these settings of its own; see ``GroupConfig``."""

    process: str
    life: int
    group_id: str
    auto_offset_reset: str
    drain_timeout: float
    heartbeat_interval: float
    partition_watch_interval: float
    rebalance_timeout: float
    isolation_level: str = "read_uncommitted"


@final
@attrs.frozen(kw_only=True)
class ProcessEnded(Fact):
    """A program has ended by itself, or because it was asked to; ``error`` is what it raised."""

    process: str
    life: int
    error: str | None


@final
@attrs.frozen(kw_only=True)
class ProcessCrashed(Fact):
    """A program is gone from one moment to the next; nothing of it counts any more."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class ProcessFrozen(Fact):
    """No task of it takes a step, and no byte moves, until it thaws."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class ProcessThawed(Fact):
    """It goes on where it was."""

    process: str
    life: int


@final
@attrs.frozen(kw_only=True)
class Told(Fact):
    """kgroup told of an event in this process."""

    process: str
    life: int
    event: Event


@final
@attrs.frozen(kw_only=True)
class HandedOut(Fact):
    """A handler got a batch: the records from ``first`` up to, and without, ``next_offset``.

    Attributes:
        left_out: offsets between the two of which the batch has no record.
        creation: which creation of the topic the records are of.
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
    creation: int = 1


@final
@attrs.frozen(kw_only=True)
class Sought(Fact):
    """A program called ``Generation.seek``."""

    process: str
    life: int
    group_id: str
    epoch: int
    partition: TopicPartition
    offset: int


@final
@attrs.frozen(kw_only=True)
class Skipped(Fact):
    """The program says that it passes the records before ``offset`` on purpose."""

    process: str
    life: int
    partition: TopicPartition
    offset: int


@final
@attrs.frozen(kw_only=True)
class Processed(Fact):
    """The program says that it is done with a record: its effect is in the world.

    Attributes:
        creation: which creation of the topic the record is of.
    """

    process: str
    life: int
    partition: TopicPartition
    offset: int
    creation: int = 1


# What the coordinators see and answer.


@final
@attrs.frozen(kw_only=True)
class Judged(Fact):
    """A coordinator answered a request at once, or parks it (``error`` is None then).

    Attributes:
        node_id: the coordinator's broker.
        incarnation: counts the times that the group was loaded, by any broker.
        api: "join_group", "sync_group", "heartbeat", "leave_group", "offset_commit",
            "offset_fetch", and so on.
        ticket: tells a parked request from all others; see ``Answered``.
        process: who asked, empty if nobody knows.
        request: the coordinator's value of the request.
        response: what was answered, or None while it is parked.
        state: the group's state after it.
        group_generation_id: the group's generation after it.
        is_member: whether the member that asked is one, after it.
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
class Answered(Fact):
    """A parked request was answered."""

    node_id: int
    ticket: int
    response: object


@final
@attrs.frozen(kw_only=True)
class MemberSeen:
    """A member as its group has it."""

    member_id: str
    process: str
    group_instance_id: str | None
    assignment: tuple[TopicPartition, ...]


@final
@attrs.frozen(kw_only=True)
class GroupChanged(Fact):
    """A group entered another state or generation, or its members changed.

    Attributes:
        assigned: whether the members' assignments are those of this generation.
        topics: what its members subscribe to, with the partitions that each has in the cluster.
        assignor: the one that the group has chosen, or None.
    """

    node_id: int
    incarnation: int
    group_id: str
    state: str
    generation_id: int
    leader: str | None
    members: tuple[MemberSeen, ...]
    assigned: bool
    topics: Mapping[str, int]
    assignor: str | None = None


@final
@attrs.frozen(kw_only=True)
class CoordinatorMoved(Fact):
    """A group was loaded by a coordinator, from what the one before had written down."""

    node_id: int
    incarnation: int
    group_id: str
    committed: Mapping[TopicPartition, int]


# What the world does.


@final
@attrs.frozen(kw_only=True)
class FaultBegan(Fact):
    """A fault of the plan happens now.

    Attributes:
        members: the states that the members it concerns are in.
        coordinator: the state that their group is in.
    """

    fault: Fault
    members: tuple[str, ...] = ()
    coordinator: str = ""


@final
@attrs.frozen(kw_only=True)
class FaultEnded(Fact):
    """A lasting fault is over."""

    fault: Fault


@final
@attrs.frozen(kw_only=True)
class Appended(Fact):
    """Records were written: from ``first`` up to, and without, ``next_offset``.

    Attributes:
        producer_id: whose open transaction they are part of, or None.
    """

    partition: TopicPartition
    first: int
    next_offset: int
    producer_id: int | None = None


@final
@attrs.frozen(kw_only=True)
class TransactionEnded(Fact):
    """A transaction was committed or aborted, by its producer or by the coordinator's timer.

    Attributes:
        producer_id: whose.
        committed: which of the two.
        markers: the offset of the marker in each partition that the transaction wrote to.
    """

    producer_id: int
    committed: bool
    markers: tuple[tuple[TopicPartition, int], ...]


@final
@attrs.frozen(kw_only=True)
class TopicChanged(Fact):
    """A topic has so many partitions now; 0 if it was deleted.

    Attributes:
        creation: counts how often a topic of this name was created.
    """

    topic: str
    partitions: int
    creation: int = 1


@final
@attrs.frozen(kw_only=True)
class Quiet(Fact):
    """All faults are over, and nothing is written any more; ``running`` are the programs left."""

    running: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class Settled(Fact):
    """The end, before the programs are asked to stop.

    Attributes:
        group_id: which group this is about.
        stable: whether every group is stable or empty.
        committed: what is committed, by partition.
        ends: where each partition's log ends.
    """

    group_id: str
    stable: bool
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@final
@attrs.frozen(kw_only=True)
class Over(Fact):
    """All programs have ended."""
