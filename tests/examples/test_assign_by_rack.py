"""The example that assigns by racks: its assignments, and a group in memory."""

from __future__ import annotations

import signal

import pytest
import trio
from trio.testing import MockClock

from kgroup.assignors.validation import check_assignments
from kgroup.broker import in_memory
from kgroup.runtime import default_runtime_factory
from kgroup.testing.memory import memory_runtime
from kgroup.types import MemberSubscription, TopicInfo
from tests.examples.loading import load
from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

EXAMPLE = load("assign_by_rack")
EAST, WEST, BOTH = ("east",), ("west",), ("east", "west")


def divided(racks: list[tuple[str, ...]], *members: str | None) -> list[list[int]]:
    """Assign partitions to members with these racks."""
    topics = {"t": TopicInfo(name="t", partitions=6, racks=tuple(racks))}
    known = [
        MemberSubscription(member_id=f"m{number}", topics=("t",), rack_id=rack)
        for number, rack in enumerate(members)
    ]
    checked = check_assignments("by-rack", topics, known, EXAMPLE.ByRack().assign(topics, known))
    assert checked.unassigned == ()
    return [[one.partition for one in part] for part in checked.assignments.values()]


def test_members_read_in_their_rack() -> None:
    """A partition goes to a member in a replica's rack, or else to the member with the fewest."""
    assert divided([EAST, WEST] * 3, "east", "west") == [[0, 2, 4], [1, 3, 5]]
    assert divided([BOTH, BOTH, EAST, EAST, EAST, ("north",)], "east", "west") == [
        [0, 2, 3, 4],
        [1, 5],
    ]
    assert divided([], "east", None) == [[0, 2, 4], [1, 3, 5]]


async def test_it_runs(
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two members, the one in the brokers' rack gets all partitions."""

    # A process has one handler of a signal, and here are two programs.
    async def no_signals(_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(EXAMPLE, "close_at_sigterm", no_signals)
    async with in_memory(settings={"broker.rack": "east"}) as broker:
        await broker.create_topic("orders", 2)
        default_runtime_factory.set(lambda: memory_runtime(broker))
        with trio.move_on_after(20):
            async with trio.open_nursery() as nursery:
                for rack in ("east", "west"):
                    nursery.start_soon(EXAMPLE.main, broker.bootstrap_servers, "orders", rack)
    assert set(capsys.readouterr().out.splitlines()[-2:]) == {
        "east owns orders-0 orders-1",
        "west owns",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_member_leaves_at_a_signal(
    reader: Reader, topic: Topic, number: signal.Signals
) -> None:
    """Its partitions are committed, and others need not wait for its session to end."""
    topic.produce(3)
    arguments = ("examples/assign_by_rack.py", topic.bootstrap_servers, topic.name, "east")
    with Worker(reader, *arguments) as one:
        one.until(lambda lines: lines)
        assert one.lines == [" ".join(["east owns", *map(str, topic.partitions)])]
        topic.wait_until_committed(f"{topic.name}-by-rack")
        one.send(number)
        assert one.ended() == 0
        assert one.errors == ""
    assert topic.members(f"{topic.name}-by-rack") == []
