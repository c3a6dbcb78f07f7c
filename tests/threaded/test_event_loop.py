"""The background thread, and calls into it: every call is answered, whatever happens."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any, Final, final

import pytest
import trio

from kgroup.background.event_loop import BackgroundLoop, Call, LoopEndedError
from kgroup.background.flag import Flag
from kgroup.errors import CommitFailedError, KgroupError, StaleGenerationError, UsageError
from kgroup.records.buffered_source import inside_source
from kgroup.threaded.slot import Slot, ThreadWakeup
from kgroup.types import Cause, End
from tests.threaded.harness import SOON, thread, wait


class Running:
    """A loop that runs until the test stops it."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.entered = threading.Event()
        self.cancelled = threading.Event()
        self.ended = threading.Event()
        self.loop = BackgroundLoop("loop of a test", self.stop.wait, self.ended.set)

    async def never(self) -> None:
        """Wait until it is cancelled; flags record that it began and that it was cancelled."""
        self.entered.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    def crash(self) -> None:
        """Make trio itself fail."""
        assert self.loop.post(fail)


def fail() -> None:
    """Raise."""
    raise ZeroDivisionError("on purpose")


@contextmanager
def running() -> Iterator[Running]:
    """A loop that ends with the test."""
    here = Running()
    here.loop.start()
    try:
        yield here
    finally:
        here.loop.post(here.stop.set)
        here.loop.join()


def test_a_call_is_made_in_the_loop() -> None:
    """Results and exceptions come back to the thread that made the call."""
    with running() as here:

        async def where() -> str:
            await trio.lowlevel.checkpoint()
            return threading.current_thread().name

        assert here.loop.run(where) == "loop of a test"
        assert here.loop.run_sync(lambda: threading.current_thread().name) == "loop of a test"
        assert not here.loop.is_current_thread
        assert here.loop.run_sync(lambda: here.loop.is_current_thread)
        with pytest.raises(ZeroDivisionError):
            here.loop.run_sync(fail)


NAME: Final = contextvars.ContextVar("name", default="none")


def test_a_call_has_its_callers_context() -> None:
    """It sees the caller's context variables and changes none; other code has the starter's."""

    def get_and_set() -> str:
        before = NAME.get()
        NAME.set("of a call")
        return before

    async def get_and_set_async() -> str:
        await trio.lowlevel.checkpoint()
        return get_and_set()

    NAME.set("of the starter")
    with running() as here:
        NAME.set("of the caller")
        assert here.loop.run(get_and_set_async) == "of the caller"
        assert here.loop.run_sync(get_and_set) == "of the caller"
        assert NAME.get() == "of the caller"
        found: list[str] = []
        posted = threading.Event()
        here.loop.post(lambda: found.append(NAME.get()))
        here.loop.post(posted.set)
        wait(posted)
        assert found == ["of the starter"]


def test_calls_that_are_made_together_keep_order_and_contexts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Async and plain calls start in the order of the calls, each in its own caller's context."""
    started: list[tuple[int, str]] = []
    calls: list[Call[None]] = []

    def note(number: int) -> None:
        started.append((number, NAME.get()))

    async def note_async(number: int) -> None:
        note(number)
        await trio.lowlevel.checkpoint()

    with running() as here:
        blocked, proceed = threading.Event(), threading.Event()
        posted, post = threading.Semaphore(0), here.loop.post

        def block() -> None:
            blocked.set()
            wait(proceed)

        def counted(fn: Callable[[], object]) -> bool:
            done = post(fn)
            posted.release()
            return done

        post(block)
        wait(blocked)
        monkeypatch.setattr(here.loop, "post", counted)
        with ExitStack() as callers:
            for number in range(60):
                NAME.set(f"caller {number}")
                if number % 3:
                    calls.append(Call[None](int))
                    here.loop.begin(calls[-1], partial(note_async, number))
                else:
                    call = partial(here.loop.run_sync, partial(note, number))
                    callers.enter_context(thread(contextvars.copy_context().run, call))
                assert posted.acquire(timeout=SOON)
            proceed.set()
    assert started == [(number, f"caller {number}") for number in range(60)]
    assert all(call.settled for call in calls)


def test_a_call_that_takes_too_long_is_cancelled() -> None:
    """A timeout raises in the thread, and cancels the call in the loop."""
    with running() as here:
        with pytest.raises(TimeoutError):
            here.loop.run(here.never, 0.01)
        wait(here.cancelled)


def test_what_interrupts_the_thread_cancels_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception out of the waiting, as a signal handler's, cancels the call in the loop."""
    with running() as here:

        def interrupted(lock: threading.Lock, timeout: float | None) -> bool:
            del lock, timeout
            wait(here.entered)
            raise KeyboardInterrupt

        with (
            monkeypatch.context() as patch,
            pytest.raises(KeyboardInterrupt),
        ):
            patch.setattr("kgroup.background.event_loop.acquire", interrupted)
            here.loop.run(here.never)
        wait(here.cancelled)


def test_the_end_answers_all_calls() -> None:
    """A call that waits when the loop ends, and one that comes later, raise."""
    with running() as here:

        def call() -> None:
            with pytest.raises(LoopEndedError):
                here.loop.run(here.never)

        with thread(call), thread(call):
            wait(here.entered)
            here.loop.post(here.stop.set)
    with pytest.raises(LoopEndedError):
        here.loop.run(here.never)
    with pytest.raises(LoopEndedError):
        here.loop.run_sync(int)
    assert not here.loop.post(fail)
    assert here.loop.error is None


def test_a_crash_answers_all_calls() -> None:
    """Calls that wait raise even if trio itself fails, and the loop keeps the error."""
    with running() as here:

        def call() -> None:
            with pytest.raises(LoopEndedError):
                here.loop.run(here.never)

        with thread(call):
            wait(here.entered)
            here.crash()
        here.loop.join()
        assert isinstance(here.loop.error, trio.TrioInternalError)
        assert here.ended.is_set()


def test_a_call_between_the_crash_and_its_noticing_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that the loop never runs, because it has just died, raises."""
    with running() as here:
        called = threading.Event()
        run = trio.run

        def run_and_linger(*args: object) -> None:
            try:
                run(*args)  # type: ignore[arg-type]
            finally:
                wait(called)

        second = BackgroundLoop("second", trio.Event().wait, int)
        monkeypatch.setattr(trio, "run", run_and_linger)
        second.start()
        assert second.post(fail)

        def call() -> None:
            with pytest.raises(LoopEndedError):
                second.run(here.never)

        def post(fn: object) -> bool:
            del fn
            called.set()
            return False

        monkeypatch.setattr(second, "post", post)
        call()
        second.join()


def test_the_loop_cannot_wait_for_itself() -> None:
    """A call from the loop's own thread is refused, because it would wait for itself."""
    with (
        running() as here,
        pytest.raises(UsageError, match="for that very thread"),
    ):
        here.loop.run_sync(lambda: here.loop.run_sync(int))


def test_a_call_of_a_finalizer_is_refused_where_it_would_wait_for_ever() -> None:
    """A thread that may hold the lock of a record source cannot wait for the loop."""
    with running() as here:
        with inside_source, pytest.raises(UsageError, match="by a finalizer"):
            here.loop.run(trio.lowlevel.checkpoint)
        here.loop.run(trio.lowlevel.checkpoint)


def test_the_end_wakes_a_thread_that_waits_for_records() -> None:
    """It waits for no call, and learns that nothing will wake it any more."""
    with running() as here:
        wakeup = ThreadWakeup(here.loop)
        wakeup.set()
        wakeup.set()
        wakeup.wait(None)
        with pytest.raises(TimeoutError):
            wakeup.wait(0)
        with thread(wakeup.wait, None):
            while wakeup not in here.loop._calls:
                threading.Event().wait(0.001)
            here.crash()
        with pytest.raises(LoopEndedError):
            wakeup.wait(None)


def test_calls_in_a_fork_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked process has no such thread: calls are refused instead of hanging."""
    with running() as here:
        parent = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(UsageError, match=f"fork of process {parent}"):
            here.loop.run_sync(int)
        assert not here.loop.post(fail)
        monkeypatch.undo()


def test_a_call_as_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call raises if the loop takes no more calls, but its thread still runs."""
    with running() as here:

        def take_no_more_calls() -> None:
            here.loop._nursery = None

        here.loop.run_sync(take_no_more_calls)
        with pytest.raises(LoopEndedError):
            here.loop.run(here.never)

        class GoneToken:
            def run_sync_soon(self, fn: object) -> None:
                raise trio.RunFinishedError(str(fn))

        with monkeypatch.context() as patch:
            patch.setattr(here.loop, "_token", GoneToken())
            assert not here.loop.post(fail)


ERRORS = [
    KgroupError("one"),
    StaleGenerationError("stale", End(Cause.REBALANCE)),
    CommitFailedError("refused", {}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_each_thread_raises_its_own_copy(error: KgroupError) -> None:
    """One error that goes to two threads keeps its parts, and their tracebacks do not mix."""
    with running() as here:

        def refuse() -> None:
            raise error

        caught = []
        for _ in range(2):
            with pytest.raises(type(error)) as info:
                here.loop.run_sync(refuse)
            caught.append(info.value)
        one, other = caught
        assert one is not other
        assert (str(one), vars(one)) == (str(error), vars(error))
        for each in caught:
            names = [frame.name for frame in traceback.extract_tb(each.__traceback__)]
            assert names.count("run_sync") == 1
        assert "refuse" in [frame.name for frame in traceback.extract_tb(one.__traceback__)]


def test_a_note_of_one_thread_is_none_of_the_others() -> None:
    """The copies of an error have its notes, each in a list of its own."""
    error = KgroupError("one")
    error.add_note("its own")

    def refuse() -> None:
        raise error

    with running() as here:
        caught = []
        for _ in range(2):
            with pytest.raises(KgroupError) as info:
                here.loop.run_sync(refuse)
            caught.append(info.value)
    caught[0].add_note("the first thread's")
    assert caught[0].__notes__ == ["its own", "the first thread's"]
    assert caught[1].__notes__ == error.__notes__ == ["its own"]


@final
class Values:
    """A slot of the numbers from 0 on; those that are put back come first."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self.values = deque(range(10))
        self.put_back: list[int] = []
        self.fetching, self.may_finish, self.filled = threading.Event(), trio.Event(), Flag()
        self.shortcuts: list[int] = []
        self.loop = loop
        self.slot = Slot(loop, self.fetch, self.take_back, "second", self.shortcut)

    async def fetch(self) -> int:
        """The next value; once it is being fetched, it cannot be cancelled."""
        self.fetching.set()
        with trio.CancelScope(shield=True):
            await self.may_finish.wait()
        # It runs once the call that waits for the value has it.
        self.loop.post(self.filled.set)
        return self.values.popleft()

    def take_back(self, value: int) -> None:
        """A value that no thread has taken."""
        self.put_back.append(value)
        self.values.appendleft(value)

    def shortcut(self, timeout: float | None) -> None:
        """It is not possible; what it would have got is noted."""
        del timeout
        self.shortcuts.append(self.values[0])

    def interrupted_take(self, *, late: bool) -> None:
        """Give up the wait while the value is being fetched, or as it has arrived."""

        def give_up(lock: threading.Lock, timeout: float | None) -> bool:
            wait(self.fetching)
            if not late:
                self.loop.post(self.may_finish.set)
                wait(self.filled)
            return False

        with pytest.MonkeyPatch.context() as patch, pytest.raises(TimeoutError):
            patch.setattr("kgroup.background.event_loop.acquire", give_up)
            self.slot.take(1.0)
        if late:
            self.loop.post(self.may_finish.set)


@pytest.mark.parametrize("late", [True, False])
def test_a_value_that_no_thread_takes_is_put_back(late: bool) -> None:
    """The next call gets the value that arrives as its thread gives up, or after that."""
    with running() as here:
        values = Values(here.loop)
        values.interrupted_take(late=late)
        wait(values.filled)
        assert here.loop.run_sync(values.put_back.copy) == [0]
        assert [values.slot.take(SOON), values.slot.take(SOON)] == [0, 1]
        assert values.put_back == [0]
        assert set(values.shortcuts[:-1]) == {0}  # never while 0 was on its way


def test_a_value_that_an_exception_left_behind_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a second exception keeps a thread from giving its value up, the next call does."""
    with running() as here:
        values = Values(here.loop)
        with monkeypatch.context() as patch:
            deaf = SimpleNamespace(run=here.loop.run, post=lambda fn: False)
            patch.setattr(values.slot, "_loop", deaf)
            values.interrupted_take(late=False)
        assert values.put_back == []
        assert [values.slot.take(SOON), values.slot.take(SOON)] == [0, 1]


def interrupt_at(number: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that raises at one of the lines of ``Slot.take``, the first is 1."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code is not Slot.take.__code__:
            return None
        if event == "line":
            lines += 1
            if lines == number:
                raise KeyboardInterrupt
        return trace

    return trace


def test_an_interrupt_at_any_line_loses_no_value() -> None:
    """The next call gets what the interrupted one has not returned, and is not refused."""
    with running() as here:
        values, before, lines = deque(range(100)), sys.gettrace(), 0

        async def fetch() -> int:
            await trio.lowlevel.checkpoint()
            return values.popleft()

        slot = Slot(here.loop, fetch, values.appendleft, "second")
        found: list[int] = []
        while not found:
            lines += 1
            with suppress(KeyboardInterrupt):
                sys.settrace(interrupt_at(lines))
                try:
                    found.append(slot.take(SOON))
                finally:
                    sys.settrace(before)
        assert lines > len({"wait", "take", "return"})
        found += [slot.take(SOON) for _ in range(3)]
        assert found == [0, 1, 2, 3]
        assert not slot._fills


def test_an_interrupt_when_a_value_was_taken_puts_it_back() -> None:
    """What the caller does with a value before it returns it may be interrupted, too."""
    with running() as here:
        values = deque(range(3))

        async def fetch() -> int:
            await trio.lowlevel.checkpoint()
            return values.popleft()

        def interrupted(_: int) -> None:
            raise KeyboardInterrupt

        slot = Slot(here.loop, fetch, values.appendleft, "second")
        with pytest.raises(KeyboardInterrupt):
            slot.take(SOON, taken=interrupted)
        slot.empty()
        assert [slot.take(SOON), slot.take(SOON)] == [0, 1]


def test_a_call_that_is_interrupted_as_it_begins_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has reached the loop, and no thread waits for it."""
    with running() as here:
        begin, cancelled = BackgroundLoop.begin, threading.Event()

        def begin_and_raise(loop: BackgroundLoop, call: Call[Any], fn: Any) -> None:
            begin(loop, call, fn)
            raise KeyboardInterrupt

        async def wait_for_ever() -> None:
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()

        monkeypatch.setattr(BackgroundLoop, "begin", begin_and_raise)
        with pytest.raises(KeyboardInterrupt):
            here.loop.run(wait_for_ever)
        wait(cancelled)


def test_a_call_that_is_refused_leaves_nothing_behind() -> None:
    """The next call may use the shortcut: no value is on its way."""
    with running() as here:
        values = Values(here.loop)
        with pytest.raises(UsageError, match="would wait for that very thread"):
            here.loop.run_sync(values.slot.take)
        here.loop.run_sync(values.may_finish.set)
        assert values.slot.take(SOON) == 0
        assert values.shortcuts == [0, 0]


def test_a_slot_is_emptied_as_a_value_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that was about to take the value waits for the next one."""
    with running() as here:
        values, settle = Values(here.loop), Call.settle

        def empty_and_settle(call: Call[Any], value: Any, error: BaseException | None) -> None:
            if not values.put_back:
                values.slot.empty()
            settle(call, value, error)

        monkeypatch.setattr(Call, "settle", empty_and_settle)
        here.loop.post(values.may_finish.set)
        assert values.slot.take(SOON) == 0
        assert values.put_back == [0]


def test_a_second_thread_is_refused() -> None:
    """Two threads cannot wait for one value."""
    with running() as here:
        slot = Slot(here.loop, here.never, lambda value: None, "another one waits")

        def first() -> None:
            with pytest.raises(LoopEndedError):
                slot.take()

        with thread(first):
            wait(here.entered)
            with pytest.raises(UsageError, match="another one waits"):
                slot.take()
            here.loop.post(here.stop.set)


def test_a_call_without_time_gets_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that polls with ``timeout=0`` gets each value, although it comes from the loop."""
    monkeypatch.setattr("kgroup.threaded.slot.ROUND_TRIP", SOON)  # the machine may be busy
    with running() as here:
        values = deque(range(100))

        async def fetch() -> int:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            return values.popleft()

        slot = Slot(here.loop, fetch, values.appendleft, "second")
        assert [slot.take(0.0) for _ in range(100)] == list(range(100))
