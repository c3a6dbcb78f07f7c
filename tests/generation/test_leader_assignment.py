"""What a leader does: find the topics of all members, call the assignor, report events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.client.coordinator import UNREADABLE
from kgroup.errors import AssignorTimeoutError, InvalidAssignmentError, UsageError
from kgroup.event_emitter import EventEmitter
from kgroup.events import (
    AssignorAbandoned,
    Event,
    PartitionsUnassigned,
    RequestFailed,
    TopicsRefused,
)
from kgroup.generation.leader_assignment import MOST_REPORTED, GroupTopics, LeaderAssignment
from kgroup.interfaces import Compute, JoinResult
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from kgroup.worker_thread import WorkerThread, compute_inline
from tests.fake_brokers import FakeBrokers, metadata
from tests.generation.fakes import MEMBERSHIP, member_context

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALONE = {1: "a:1"}


class Everything:
    """A custom assignor: gives all partitions to the members it is made for."""

    name = "range"

    def __init__(self, to: Sequence[str], gives: Sequence[TopicPartition] = (T0, T1)) -> None:
        self.to = to
        self.gives = gives
        self.threads: list[str] = []

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``Assignor``."""
        assert topics
        assert members
        self.threads.append(threading.current_thread().name)
        return {member: list(self.gives) for member in self.to}


class Led:
    """A leader of m-1 and m-2, both of topic t."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *members: MemberSubscription,
        assignor: Any = "range",
        compute: Compute = compute_inline,
        **answer: Any,
    ) -> None:
        self.nodes = FakeBrokers(nursery)
        self.node = self.nodes.add("a:1", metadata=metadata(ALONE, {"t": [1, 1]}))
        self.events: list[Event] = []
        member = member_context(
            cluster=self.nodes.cluster(),
            emitter=EventEmitter("g", self.events.append),
            assignor_thread=compute,
            assignors=[assignor],
        )
        self.leader = LeaderAssignment(
            member=member,
            membership=attrs.evolve(MEMBERSHIP, leader=True),
            answer=JoinResult(
                member_id="m-1",
                generation_id=7,
                assignor="range",
                leader=True,
                members=members or (subscribed("m-1", "t"), subscribed("m-2", "t")),
                **answer,
            ),
            deadline=trio.current_time() + member.config.rebalance_timeout,
        )


def subscribed(member_id: str, *topics: str) -> MemberSubscription:
    """A member and its topics."""
    return MemberSubscription(member_id=member_id, topics=topics)


def wanted(*own: str, foreign: Collection[str] = ()) -> GroupTopics:
    """Topics to fetch."""
    return GroupTopics(frozenset(own), frozenset(foreign), {})


def known(partitions: int = 2) -> dict[str, TopicInfo]:
    """Topic t."""
    return {"t": TopicInfo(name="t", partitions=partitions)}


async def test_topics_are_the_whole_group_s(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader finds its own topics, and those that only other members subscribe to."""
    it = Led(nursery, subscribed("m-1", "t"), subscribed("m-2", "u", "v"))
    found = await it.leader.topics_of({"t", "w"}, it.leader.answer.members)
    assert found == wanted("t", "w", foreign=["u", "v"])


async def test_missing_topics_are_told_apart(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The topics that no broker knows are named; the others are found."""
    it = Led(nursery)
    it.node.answers["metadata"] = metadata(ALONE, {"t": [1], "z": 3, "a": 3})
    found = await it.leader.fetch_topics(wanted("t", "z", "a"))
    assert list(found.known) == ["t"]
    assert sorted(found.missing) == ["a", "z"]
    assert it.events == []


async def test_an_unavailable_broker_is_waited_for(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each failed request is reported; with a single attempt its error is raised."""
    it = Led(nursery)
    it.node.up = False
    with pytest.raises(Exception, match="a:1"):
        await it.leader.fetch_topics_once(wanted("t"))

    async def come_back() -> None:
        await trio.sleep(3)
        it.node.up = True

    nursery.start_soon(come_back)
    assert list((await it.leader.fetch_topics(wanted("t"))).known) == ["t"]
    assert {type(event) for event in it.events} == {RequestFailed}


async def test_without_topics_no_request_is_sent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """For old brokers, an empty list of topics would mean every topic of the cluster."""
    it = Led(nursery)
    with trio.testing.assert_checkpoints():
        assert await it.leader.fetch_topics_once(wanted()) == {}
    assert it.nodes.received == []


async def test_every_member_is_in_the_assignment(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A member that gets no partition is in the assignment too."""
    it = Led(nursery)
    assert await it.leader.assign(known(1)) == {"m-1": (T0,), "m-2": ()}
    assert it.events == []


async def test_a_leader_that_is_to_skip_assigns_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """KIP-814: a restarted static leader keeps the group's assignment as it is."""
    it = Led(nursery, skip_assignment=True)
    with trio.testing.assert_checkpoints():
        assert await it.leader.assign(known()) == {}


async def test_an_assignor_that_was_never_offered(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The error names the assignor and the member."""
    it = Led(nursery, assignor="roundrobin")
    with pytest.raises(UsageError, match="'m-1' .* chose the assignor 'range', which this member"):
        await it.leader.assign(known())


async def test_unassigned_partitions_are_reported(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A partition without an owner is a warning and no error: an assignor may intend it."""
    it = Led(nursery, assignor=Everything(["m-2"], [T1]))
    assert await it.leader.assign(known()) == {"m-1": (), "m-2": (T1,)}
    assert it.events == [PartitionsUnassigned(group_id="g", partitions=(T0,))]


async def test_an_invalid_assignment_is_refused(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader refuses it before it is sent."""
    it = Led(nursery, assignor=Everything(["m-1", "m-2"]))
    with pytest.raises(InvalidAssignmentError, match="t-0 goes to 'm-1' and again to 'm-2'"):
        await it.leader.assign(known())


async def test_members_with_unreadable_subscriptions_are_reported(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """They get no partition, and one event says why, however many they are."""
    broken = [
        MemberSubscription(member_id=f"m-{number}", version=UNREADABLE) for number in range(2, 999)
    ]
    it = Led(nursery, subscribed("m-1", "t"), *broken)
    assert (await it.leader.assign(known(1)))["m-1"] == (T0,)
    (event,) = it.events
    assert "the subscriptions of 997 members cannot be read: m-2, m-3" in str(event)
    assert "more; next: assign them no partitions" in str(event)


async def test_very_many_names_are_compared_in_a_thread(nursery: trio.Nursery) -> None:
    """Other members decide how many there are; events have only some, and the own ones."""
    it = Led(
        nursery,
        subscribed("m-1", "t", "zzz"),
        *(subscribed(f"m-{n}", *(f"n{n}-{k}" for k in range(1000))) for n in range(2, 14)),
        subscribed("m-x", *(f"no topic {k}" for k in range(2000))),
    )
    threads: list[str] = []
    compute = WorkerThread()

    async def watched(work: Callable[[], Any], name: str) -> Any:
        threads.append(name)
        return await compute(work, name)

    leader = attrs.evolve(it.leader, member=attrs.evolve(it.leader.member, checking_thread=watched))
    topics = await leader.topics_of({"t", "zzz"}, leader.answer.members)
    assert (len(topics.foreign), len(topics.invalid)) == (12_000, MOST_REPORTED)
    found = await leader.fetch_topics(topics)
    assert list(found.known) == ["t"]
    assert len(found.missing) == MOST_REPORTED + 1
    assert "zzz" in found.missing
    assert threads == ["kgroup-topics g"] * 2
    (event,) = it.events
    assert isinstance(event, TopicsRefused)
    assert len(event.topics) == MOST_REPORTED


async def test_an_assignor_is_called_in_a_thread(nursery: trio.Nursery) -> None:
    """Heartbeats continue, and the thread's name says what it is for."""
    assignor = Everything(["m-1"])
    it = Led(nursery, assignor=assignor, compute=WorkerThread())
    assert (await it.leader.assign(known()))["m-1"] == (T0, T1)
    assert assignor.threads != [threading.current_thread().name]
    assert assignor.threads == ["kgroup-assign g"]


async def for_ever(work: Any, name: str) -> Any:
    """A computation that does not end."""
    await trio.sleep_forever()


async def test_an_assignor_has_until_the_rebalance_time_out(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader abandons it a second before the coordinator would remove the leader."""
    it = Led(nursery, assignor=Everything([]), compute=for_ever)
    began = trio.current_time()
    with pytest.raises(AssignorTimeoutError, match="2 partitions to 2 members") as raised:
        await it.leader.assign(known())
    assert trio.current_time() - began == it.leader.member.config.rebalance_timeout - 1
    assert "'m-1'" in str(raised.value)
    assert (raised.value.assignor, raised.value.thread) == ("range", "kgroup-assign g")
    (event,) = it.events
    assert isinstance(event, AssignorAbandoned)
    assert (event.seconds, event.thread) == (29.0, "kgroup-assign g")


async def test_an_assignor_is_given_up_with_its_generation(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader abandons it at once, with an event; its thread may run on."""
    it = Led(nursery, assignor=Everything([]), compute=for_ever)
    with trio.move_on_after(5) as scope:
        await it.leader.assign(known())
    assert scope.cancelled_caught
    (event,) = it.events
    assert isinstance(event, AssignorAbandoned)
    assert event.seconds == 5.0
