"""A leader whose assignor computes for long: heartbeats continue, and so does the group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.assignors import BUILTIN
from kgroup.errors import AssignorTimeoutError
from kgroup.events import AssignorAbandoned, Joined, Left, RequestFailed
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.worker_thread import WorkerThread, compute_inline
from tests.group.harness import P0, P1, Harness, harness


def computing(here: Harness, compute: Callable[[], Any], **settings: Any) -> ConsumerGroup:
    """A group whose assignments are computed by this function."""
    runtime = attrs.evolve(memory_runtime(here.broker, seed=9), compute=compute)
    return ConsumerGroup(here.config(**settings), runtime=runtime, on_event=here.events.append)


class Lasting:
    """A `Compute` that takes some seconds of virtual time for an assignor, and none for reading."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> Any:
        """What a member computes with."""
        return self.compute

    async def compute(self, work: Callable[[], Any], name: str) -> Any:
        """See `Compute`."""
        if name.startswith("kgroup-assign"):
            await trio.sleep(self.seconds)
        return await compute_inline(work, name)


async def test_heartbeats_continue_while_the_leader_computes(autojump_clock: MockClock) -> None:
    """The coordinator waits past the session time-out, and the assignment is used."""
    async with harness(2) as here:
        settings = {"session_timeout": 6.0, "rebalance_timeout": 30.0}
        async with computing(here, Lasting(25.0), **settings) as group:
            generation = await group.next()
            assert set(generation.assignment) == {P0, P1}
            assert generation.generation_id == 1
        assert len(here.requests_for("join_group")) == 2  # the first got its id
        assert len(here.requests_for("heartbeat")) >= 25


async def test_an_assignor_that_never_ends_costs_the_leader_its_place(
    autojump_clock: MockClock,
) -> None:
    """The leader fails before the coordinator acts; another member leads and owns everything."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        other = here.group()

        async def be_the_other() -> None:
            async with other:
                generation = await other.next()
                assert (generation.leader, set(generation.assignment)) == (True, {P0, P1})

        began = trio.current_time()
        with pytest.raises(AssignorTimeoutError, match="'range' did not assign 2 partitions"):
            async with computing(here, Lasting(1e6), rebalance_timeout=10.0) as group:
                nursery.start_soon(be_the_other)
                await group.next()
        # The other's Join was a rebalance, with which it began again.
        assert here.events_of(AssignorAbandoned)[-1].seconds == pytest.approx(9.0)
        assert trio.current_time() - began < 25
        assert not [event for event in here.events_of(Left) if not event.notified]


@pytest.mark.parametrize("late", [6.0, 8.95, 9.5])
async def test_topics_that_are_found_late_are_not_the_assignors_fault(
    autojump_clock: MockClock, late: float
) -> None:
    """The leader joins again instead of closing, and its assignor has all its time at last."""
    async with harness(2) as here:
        here.broker.slow(late, "metadata", match=lambda request: bool(request.topics), times=1)
        settings = {"rebalance_timeout": 10.0, "request_timeout": 20.0}
        async with computing(here, Lasting(4.0), **settings) as group:
            generation = await group.next()
            assert set(generation.assignment) == {P0, P1}
        first = here.events_of(RequestFailed)[0]
        assert first.request == "SyncGroup"
        assert f"the topics were found {late:.1f} s after" in first.reason


@attrs.define
class Blocking:
    """An assignor that blocks its thread until it is released."""

    name: str = "blocking"
    calls: list[str] = attrs.field(factory=list)
    may_finish: threading.Event = attrs.field(factory=threading.Event)

    def assign(self, topics: Any, members: Any) -> Any:
        """Assign as range does, once released."""
        self.calls.append(threading.current_thread().name)
        assert self.may_finish.wait(30)
        return BUILTIN["range"].assign(topics, members)


async def test_a_thread_that_blocks_stops_nothing() -> None:
    """Heartbeats continue; a rebalance abandons the assignor; the next one waits for its thread."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        quick = {"heartbeat_interval": 0.02, "rejoin_backoff": 0.01}
        one, two = Blocking(), Blocking()
        two.may_finish.set()
        beating, given_up = trio.Event(), trio.Event()

        def match(_: Any) -> bool:
            if len(here.requests_for("heartbeat")) >= 5:
                beating.set()
            # Both are members of the next generation, though the thread still blocks.
            if here.events_of(AssignorAbandoned) and len(here.events_of(Joined)) >= 3:
                given_up.set()
            return False

        here.broker.slow(0.0, match=match)
        async with computing(here, WorkerThread, assignors=[one], **quick) as group:
            arrived = trio.Event()

            async def take() -> None:
                generation = await group.next()
                assert len(generation.assignment) == 1
                arrived.set()

            async def join() -> None:
                async with computing(here, WorkerThread, assignors=[two], **quick) as other:
                    await other.next()
                    await arrived.wait()

            nursery.start_soon(take)
            with trio.fail_after(30):
                await beating.wait()
                assert one.calls == ["kgroup-assign group"]
                nursery.start_soon(join)
                await given_up.wait()
                one.may_finish.set()
                await arrived.wait()
        # Who leads the next generation is the coordinator's to say.
        assert len(one.calls) + len(two.calls) >= 2
