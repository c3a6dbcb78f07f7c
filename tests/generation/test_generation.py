"""Generation: its attributes and methods, and the errors of wrong calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.aio import Generation as AsyncioGeneration
from kgroup.errors import (
    NotOwnedError,
    OffsetBehindCommitError,
    StaleGenerationError,
    UsageError,
)
from kgroup.generation.commits import group_metadata
from kgroup.generation.generation import MAX_RECORDS, Generation, MembershipView
from kgroup.generation.pauses import Pauses
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.start_finder import StartFinder
from kgroup.generation.states import State
from kgroup.generation.streams import GenerationParts
from kgroup.threaded import Generation as ThreadedGeneration
from kgroup.types import Assignment, Cause, End, Membership, TopicPartition
from tests.generation.fakes import MEMBERSHIP, P0, P1, P2, FakeGeneration, at
from tests.generation.test_commits import FakeProducer

LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")
STATIC = attrs.evolve(MEMBERSHIP, group_instance_id="i-1", leader=True)


class Made:
    """A generation of t-0 and t-1, with the parts that it uses."""

    def __init__(self) -> None:
        self.fake = fake = FakeGeneration(owned=(P0, P1), start={P0: 5})
        self.source = fake.source
        self.life = fake.lifecycle
        starts = StartFinder(fake.member, fake.lifecycle, fake.positions, fake.committer)
        parts = GenerationParts(
            member=fake.member,
            lifecycle=fake.lifecycle,
            positions=fake.positions,
            starts=starts,
            searches=PositionSearches(
                fake.member, fake.lifecycle, fake.positions, starts, fake.committer
            ),
            committer=fake.committer,
            pauses=Pauses(fake.source, MEMBERSHIP.epoch),
        )
        self.generation = Generation(parts, Assignment((P0, P1)))


async def test_a_generation_shows_its_membership(autojump_clock: MockClock) -> None:
    """All fields of the membership, the assignment and the positions can be read."""
    one = Made().generation
    assert (one.group_id, one.member_id, one.group_instance_id) == ("g", "m-1", None)
    assert (one.generation_id, one.epoch, one.leader, one.assignor) == (7, 3, False, "range")
    assert list(one.assignment) == [P0, P1]
    assert one.start_offsets == {P0: 5}
    assert one.transaction_metadata() == group_metadata(MEMBERSHIP)


async def test_the_identity_of_a_generation_that_has_ended(autojump_clock: MockClock) -> None:
    """It is not given: the next generation may have the same id, and nothing would be refused."""
    made = Made()
    made.life.end(LOSS)
    with pytest.raises(StaleGenerationError):
        made.generation.transaction_metadata()


async def test_repr_shows_the_state(autojump_clock: MockClock) -> None:
    """The repr has the id, the group, the state and, after the end, the cause."""
    made = Made()
    one = made.generation
    assert repr(one) == "<Generation 7 of 'g', running>"
    assert (one.state, one.end, one.ending.is_set()) == (State.RUNNING, None, False)
    made.life.end(LOSS)
    assert repr(one) == "<Generation 7 of 'g', ended: membership lost: forgotten>"
    assert (one.state, one.end, one.ending.is_set()) == (State.ENDED, LOSS, True)


async def test_the_lease_is_never_negative(autojump_clock: MockClock) -> None:
    """`lease` is the time left; 0 once the lease has expired or the generation has ended."""
    made = Made()
    assert made.generation.lease == pytest.approx(30)
    await trio.sleep(20)
    assert made.generation.lease == pytest.approx(10)
    await trio.sleep(20)
    assert made.generation.lease == 0
    made.fake.lease.confirm(trio.current_time())
    assert made.generation.lease == pytest.approx(30)
    made.life.end(LOSS)
    assert made.generation.lease == 0


async def test_streams_share_no_partition(autojump_clock: MockClock) -> None:
    """A partition of another open stream is refused; one of a closed stream is not."""
    one = Made().generation
    first = one.records(P0)
    assert one.streams == {first}
    with pytest.raises(UsageError, match=r"t-0: another stream of member 'm-1'"):
        one.records()
    assert one.records([P1]).partitions == {P1}
    first.close()
    assert one.records(P0).partitions == {P0}
    assert len(one.streams) == 2


async def test_a_stream_reads_all_partitions_by_default(autojump_clock: MockClock) -> None:
    """A stream without arguments has every owned partition, and batches of a bounded size."""
    stream = Made().generation.records()
    assert stream.partitions == {P0, P1}
    assert stream._limit == MAX_RECORDS


@pytest.mark.parametrize("bad", [0, -1])
async def test_max_records_is_at_least_one(autojump_clock: MockClock, bad: int) -> None:
    """The error has the given value; no stream is left open."""
    one = Made().generation
    with pytest.raises(UsageError, match=f"max_records={bad} is refused"):
        one.records(max_records=bad)
    assert not one.streams


@pytest.mark.parametrize(
    "use",
    [
        lambda one: one.records(P2),
        lambda one: one.records([P0, P2]),
        lambda one: one.pause(P2),
        lambda one: one.resume([P2]),
        lambda one: one.seek(P2, 0),
    ],
)
async def test_a_partition_that_is_not_owned_is_refused(
    autojump_clock: MockClock, use: Any
) -> None:
    """A call that names another member's partition changes nothing, also for the owned ones."""
    made = Made()
    with pytest.raises(NotOwnedError, match=r"this generation does not own t-2"):
        use(made.generation)
    assert made.source.log == []


async def test_pause_and_resume(autojump_clock: MockClock) -> None:
    """One, several or all partitions are paused under the generation's epoch."""
    made = Made()
    made.generation.pause(P0)
    made.generation.pause()
    made.generation.resume([P1])
    assert made.source.log == [
        ("pause", 3, [P0]),
        ("pause", 3, [P0, P1]),
        ("resume", 3, [P1]),
    ]


async def test_commits_follow_a_seek_back(autojump_clock: MockClock) -> None:
    """After a seek back, offsets from there on can be committed."""
    made = Made()
    with pytest.raises(OffsetBehindCommitError, match="seek first"):
        await made.generation.commit({P0: 2}, beyond_read=True)
    made.generation.seek(P0, 2)
    await made.generation.commit({P0: 2}, beyond_read=True)
    assert made.source.log == [("seek", 3, P0, 2)]
    assert made.fake.coordinator.commits == [at(p0=2)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (-1, "for librdkafka's OFFSET_END seek to the end of the log, as .*get_watermark_offsets"),
        (-2, "for librdkafka's OFFSET_BEGINNING seek to the first offset .*get_watermark_offsets"),
        (-1000, "for librdkafka's OFFSET_STORED seek to the group's committed offset, as .*commit"),
        (-1001, "for librdkafka's OFFSET_INVALID seek to the group's committed offset, as"),
        (-3, "it must be a whole number from 0 to"),
        (2**63, "it must be a whole number from 0 to"),
    ],
)
async def test_seek_to_an_impossible_offset(autojump_clock: MockClock, bad: int, why: str) -> None:
    """The error says where to look up what was meant; position and source are not changed."""
    made = Made()
    with pytest.raises(ValueError, match=f"t-0: offset={bad} is refused: .*{why}"):
        made.generation.seek(P0, bad)
    assert made.fake.positions.lower_bound(P0) == 5
    assert made.source.log == []


async def test_a_commit_of_nothing_sends_nothing(autojump_clock: MockClock) -> None:
    """A commit without offsets is a checkpoint all the same."""
    made = Made()
    with trio.testing.assert_checkpoints():
        await made.generation.commit({})
    assert made.fake.coordinator.commits == []


async def test_after_the_end_nothing_is_committed(autojump_clock: MockClock) -> None:
    """Both kinds of commit raise with the end; start_soon returns False."""
    made = Made()
    made.life.end(LOSS)
    producer: Any = object()
    with pytest.raises(StaleGenerationError, match=r"has ended \(membership lost: forgotten\)"):
        await made.generation.commit({P0: 9}, beyond_read=True)
    with pytest.raises(StaleGenerationError) as caught:
        await made.generation.commit_in_transaction(producer, {P0: 9}, beyond_read=True)
    assert caught.value.end is LOSS
    assert not made.generation.start_soon(trio.sleep, 1)


@pytest.mark.parametrize(
    ("end", "advice"),
    [
        (LOSS, "continue with the next generation"),
        (End(Cause.CLOSED, "enough"), "its group is closed and gives no other one"),
    ],
)
async def test_calls_after_the_end(autojump_clock: MockClock, end: End, advice: str) -> None:
    """They say that the generation has ended, why, and what to do; nothing is done."""
    made = Made()
    made.life.end(end)
    made.life._finish()
    one = made.generation
    calls: list[Callable[[], None]] = [one.pause, one.resume, partial(one.seek, P0, 7)]
    for call in calls:
        with pytest.raises(StaleGenerationError) as raised:
            call()
        said = str(raised.value)
        assert f"the generation has ended ({end}), so that nothing was done; {advice}" in said
        assert "member 'm-1' of group 'g' in generation 7" in said
        assert raised.value.end is end
    await trio.lowlevel.checkpoint()


async def test_a_stream_after_the_end(autojump_clock: MockClock) -> None:
    """It is empty, because an end may come just before; another one is refused, and says why."""
    made = Made()
    made.life.end(LOSS)
    for partition in (P0, P1):
        stream = made.generation.records(partition)
        assert [batch async for batch in stream] == []
    for open_again in (made.generation.records, made.generation.offsets):
        with pytest.raises(StaleGenerationError, match="so that nothing more of t-0, t-1 is read"):
            open_again()


async def test_a_transaction_s_offsets_are_checked_as_a_commit_s(
    autojump_clock: MockClock,
) -> None:
    """Wrong offsets are refused before the producer is called."""
    one = Made().generation
    producer: Any = SimpleNamespace(send_offsets_to_transaction=pytest.fail)
    with pytest.raises(NotOwnedError):
        await one.commit_in_transaction(producer, {P2: 1}, beyond_read=True)
    with pytest.raises(OffsetBehindCommitError):
        await one.commit_in_transaction(producer, {P0: 4}, beyond_read=True)


async def test_a_transaction_s_offsets_go_to_the_producer() -> None:
    """The committed position stays, because the transaction may still be aborted."""
    made = Made()
    producer = FakeProducer()
    await made.generation.commit_in_transaction(producer, {P0: 9}, beyond_read=True)  # type: ignore[arg-type]
    assert [[it.offset for it in positions] for positions, *_ in producer.given] == [[9]]
    assert made.fake.positions.lower_bound(P0) == 5


async def test_scope_ends_with_the_tasks(autojump_clock: MockClock) -> None:
    """`scope` cancels its block when the generation's tasks are cancelled."""
    made = Made()
    reached = []
    with made.generation.scope():
        made.life.end(LOSS)
        await trio.sleep(1)
        reached.append(1)
    assert reached == []


async def test_a_partition_of_another_topic_is_refused(autojump_clock: MockClock) -> None:
    """A partition of a topic that the generation does not have cannot be read."""
    with pytest.raises(NotOwnedError):
        Made().generation.records([TopicPartition("other", 0)])


# What a generation shows of its member.


@pytest.mark.parametrize("membership", [MEMBERSHIP, STATIC])
@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Membership)])
def test_each_attribute_of_the_membership_is_shown(membership: Membership, name: str) -> None:
    """Each attribute of a membership is shown under its own name."""
    assert getattr(MembershipView(membership), name) == getattr(membership, name)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Membership)])
def test_the_membership_is_read_only(name: str) -> None:
    """What a generation shows of its member can only be read."""
    view = MembershipView(MEMBERSHIP)
    with pytest.raises(AttributeError):
        setattr(view, name, "other")
    assert getattr(view, name) == getattr(MEMBERSHIP, name)


@pytest.mark.parametrize("generation", [Generation, ThreadedGeneration])
def test_both_kinds_of_generation_show_the_same(generation: type[MembershipView]) -> None:
    """A generation of an event loop and one of threads add no attributes of their own."""
    assert {field.name for field in attrs.fields(Membership)}.isdisjoint(vars(generation))
    assert issubclass(generation, MembershipView)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (Generation, "start", r"it has start_soon\(fn, \*args\).* in a task"),
        (AsyncioGeneration, "start", r"it has start_soon\(fn, \*args\).* in a task"),
        (ThreadedGeneration, "start_soon", r"it has start\(fn, \*args\).* in a thread"),
    ],
)
def test_a_method_of_the_other_generation(kind: type[Any], name: str, expected: str) -> None:
    """Its AttributeError says what stands for it; other attributes are as those of any object."""
    generation: Any = object.__new__(kind)
    with pytest.raises(AttributeError, match=expected) as info:
        getattr(generation, name)
    assert (info.value.name, info.value.obj) == (name, generation)
    assert not hasattr(generation, name)
    assert name not in dir(generation)
    with pytest.raises(AttributeError, match="object has no attribute 'comit'"):
        _ = generation.comit
    with pytest.raises(AttributeError, match="object has no attribute '_membership'"):
        _ = generation.group_id  # the property's own error, not that there is no such property
    generation.mark = 5
    assert copy.copy(generation).mark == 5
