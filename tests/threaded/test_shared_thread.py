"""Groups of a process share one background thread, and nothing else that could fail."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

import psutil
import pytest
import trio

from kgroup.assignors.roundrobin import RoundRobinAssignor
from kgroup.background import event_loop
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.config import GroupConfig
from kgroup.errors import UsageError
from kgroup.events import Event
from kgroup.group import default_runtime
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness, thread, wait

IDLE = 20
TRIO_KEEPS = 20
"""trio keeps the threads in which something was called; on a slow machine there may be several."""
MEMBER: Final[ContextVar[str]] = ContextVar("MEMBER", default="")


@final
class Guest:
    """A loop that shares its thread, until the test stops it."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.ends = 0
        self.raises: BaseException | None = None
        self.loop = BackgroundLoop("not used", self._main, self._on_end, shares=True)

    async def _main(self) -> None:
        MEMBER.set(f"{id(self)}")
        await self.stop.wait()
        if self.raises is not None:
            raise self.raises

    def _on_end(self) -> None:
        self.ends += 1

    def works(self) -> bool:
        """Whether calls are answered."""
        return self.loop.run_sync(lambda: 1) == 1

    def end(self) -> None:
        """Let its function return or raise, and wait for that."""
        self.loop.post(self.stop.set)
        self.loop.join()


@contextmanager
def guests(count: int) -> Iterator[list[Guest]]:
    """Loops that share a thread, each with a call before it."""
    made = [Guest() for _ in range(count)]
    for each in made:
        each.loop.start()
    try:
        yield made
    finally:
        for each in made:
            each.end()
            assert each.ends == 1


def fail() -> None:
    """Raise."""
    raise ZeroDivisionError("on purpose")


async def read_context() -> str:
    """The member's name in the context of a call."""
    await trio.lowlevel.checkpoint()
    return MEMBER.get()


def test_the_thread_ends_with_its_last_loop() -> None:
    """Loops share a thread in any order of their ends, and a later one has another thread."""
    with guests(3) as (first, second, third):
        shared = first.loop.thread
        assert second.loop.thread is third.loop.thread is shared
        for each in (first, third):
            each.end()
            assert second.works()
            assert shared.is_alive()
        second.end()
        assert not shared.is_alive()
        with guests(1) as (later,):
            assert later.loop.thread is not shared
            assert later.works()


@pytest.mark.parametrize("error", [ZeroDivisionError("own"), SystemExit(3), KeyboardInterrupt()])
def test_what_one_loop_raises_ends_no_other(error: BaseException) -> None:
    """Its function's exception is kept for its owner, whatever it is."""
    with guests(2) as (failing, other):
        failing.raises = error
        failing.end()
        assert isinstance(failing.loop.error, BaseExceptionGroup)
        assert failing.loop.error.exceptions == (error,)
        with pytest.raises(LoopEndedError):
            failing.works()
        assert other.works()
        assert other.loop.error is None


def test_a_callback_that_raises_ends_its_own_loop() -> None:
    """What would be the end of trio is the end of the loop for which it was called."""
    with guests(2) as (failing, other):
        assert failing.loop.post(fail)
        failing.loop.join()
        assert isinstance(failing.loop.error, ZeroDivisionError)
        assert not failing.loop.post(fail)
        assert other.works()


def test_no_call_runs_for_a_loop_that_has_ended() -> None:
    """A call that was on its way when its loop ended does nothing, though the thread runs on."""
    called: list[int] = []
    with guests(2) as (ending, other):
        ending.loop.run_sync(ending.stop.set)
        ending.loop.join()
        ending.loop._call_as_guest(lambda: called.append(1))
        assert other.works()
    assert called == []


def test_loops_do_not_see_each_other_s_context() -> None:
    """A context variable that one sets is not set in another, nor in one that comes later."""
    with guests(2) as (first, second):
        seen = [each.loop.run(read_context) for each in (first, second)]
        assert seen == ["", ""]
        with guests(1) as (third,):
            assert third.loop.run(read_context) == ""


def test_if_trio_fails_every_loop_ends_with_its_error() -> None:
    """Calls are answered, and the next loop begins in a new thread."""
    with guests(2) as both:
        host = event_loop._host()
        host.loop.post(fail)
        for each in both:
            each.loop.join()
            assert isinstance(each.loop.error, trio.TrioInternalError)
            with pytest.raises(LoopEndedError):
                each.works()
        with guests(1) as (later,):
            assert later.works()


def test_if_trio_cannot_begin_the_loop_ends_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a free descriptor makes one thread, and its next loop another one."""
    begun: list[BackgroundLoop] = []

    def out_of_descriptors(*_: object) -> None:
        # Endless attempts would exhaust the machine.
        begun.append(failing.loop)
        raise OSError(24, "Too many open files") if len(begun) == 1 else SystemExit

    failing = Guest()
    with monkeypatch.context() as patch:
        patch.setattr(trio, "run", out_of_descriptors)
        failing.loop.start()
        failing.loop.join()
    assert isinstance(failing.loop.error, OSError)
    assert (failing.ends, len(begun)) == (1, 1)
    with pytest.raises(LoopEndedError):
        failing.works()
    with guests(1) as (later,):
        assert later.works()


def test_a_loop_that_begins_as_the_last_one_ends_gets_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that is about to end admits no loop; the caller does not notice."""
    with guests(1) as (first,):
        ending = event_loop._host()
        first.end()
        find = event_loop._host
        found = iter([ending])
        monkeypatch.setattr(event_loop, "_host", lambda: next(found, None) or find())
        with guests(1) as (second,):
            assert second.works()
            assert second.loop.thread is not ending.loop.thread


def test_of_two_threads_that_begin_at_once_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first loops of a process may begin together; they share a thread."""
    first, start = Guest(), BackgroundLoop.start

    def start_late(loop: BackgroundLoop) -> None:
        start(loop)
        if first.loop.thread.ident is None:  # not in the call that this one makes
            monkeypatch.setattr(BackgroundLoop, "start", start)
            first.loop.start()
            unneeded.append(loop)

    unneeded: list[BackgroundLoop] = []
    second = Guest()
    monkeypatch.setattr(BackgroundLoop, "start", start_late)
    second.loop.start()
    assert second.works()
    assert second.loop.thread is first.loop.thread
    unneeded[0].join()
    first.end()
    second.end()


def test_a_fork_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parent shares does not run in the child."""
    with guests(1) as (parent,):
        pid = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: pid + 1)
            assert parent.loop.forked
            with guests(1) as (child,):
                assert child.works()
                assert child.loop.thread is not parent.loop.thread
        assert parent.works()


def test_a_loop_cannot_begin_in_the_thread_that_it_would_share() -> None:
    """It would wait for that very thread."""
    with guests(1) as (first,), pytest.raises(UsageError, match="for that very thread"):
        first.loop.run_sync(Guest().loop.start)


def joined(group: ConsumerGroup, until: threading.Event, joins: threading.Semaphore) -> None:
    """Be an idle member until an event is set."""
    with group:
        generation = group.next(SOON)
        generation.start(list, generation.records())
        joins.release()
        wait(until)


def kgroup_threads() -> list[str]:
    """The names of the threads that kgroup has in this process, but for those of handlers."""
    names = [one.name for one in threading.enumerate()]
    return sorted(name for name in names if re.match(r"kgroup-(shared|records-.*|g\d+)$", name))


def test_idle_groups_have_one_thread_and_three_consumers() -> None:
    """Twenty groups have one event loop, and what members of one loop have: 16 threads for all."""
    over, joins = threading.Event(), threading.Semaphore(0)
    with EmbeddedKafka({"group.initial.rebalance.delay.ms": 0}) as kafka, ExitStack() as members:
        here = Harness(Kafka(EMBEDDED, kafka.bootstrap_servers))
        here.create()
        before = psutil.Process().num_threads()
        for number in range(IDLE):
            group = here.group(group_id=f"g{number}")
            members.enter_context(thread(joined, group, over, joins))
        members.callback(over.set)
        for _ in range(IDLE):
            assert joins.acquire(timeout=SOON)
        names = kgroup_threads()
        native = psutil.Process().num_threads() - before
    assert [name.split("-")[1] for name in names] == ["records"] * 3 + ["shared"]
    # A member and its handler are threads of the test. A Consumer has five, and trio keeps some.
    assert native - 2 * IDLE <= 1 + 3 * 5 + TRIO_KEEPS
    assert kgroup_threads() == []


def test_an_event_handler_that_blocks_stops_no_other_group() -> None:
    """A group with a handler of events has a thread of its own; another one joins and commits."""
    blocked, go_on = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        blocked.set()
        wait(go_on)

    with EmbeddedKafka({"group.initial.rebalance.delay.ms": 0}) as kafka:
        here = Harness(Kafka(EMBEDDED, kafka.bootstrap_servers))
        here.create()
        first, other = here.group(block, group_id="g1"), here.group()
        with first, thread(first.next, SOON):
            wait(blocked)
            with other:
                other.next(SOON).commit({here.partition(0): 0})
            go_on.set()
        assert here.committed() == 0


@pytest.mark.parametrize(
    "own",
    [
        {"on_event": print},
        {"assignors": [RoundRobinAssignor()]},
        {"starts": lambda partitions: {}},
        {"events_to": "events"},
        {"runtime": default_runtime()},
    ],
    ids=lambda own: next(iter(own)),
)
def test_a_group_whose_loop_runs_the_program_s_code_shares_no_thread(own: dict[str, Any]) -> None:
    """What the program's code, or a slow disk, blocks is the group's own event loop."""
    parts = {name: own.pop(name) for name in ("on_event", "runtime") if name in own}
    settings = {"group_id": "g", "bootstrap_servers": "h:1", "topics": ["t"], **own}
    group = ConsumerGroup(GroupConfig(**settings), **parts)
    assert not group._loop._shares
