"""Threads beside the event loop: the worker thread, and calls in threads."""

from __future__ import annotations

import threading
from contextvars import ContextVar, copy_context
from functools import partial

import pytest
import trio
import trio.testing

from kgroup.worker_thread import ThreadCall, WorkerThread, compute_inline, post_to, stack_of


async def test_a_worker_thread_has_a_name() -> None:
    """Results and exceptions come back from a thread with the given name."""
    compute = WorkerThread()
    assert await compute(lambda: threading.current_thread().name, "a name") == "a name"
    with pytest.raises(ZeroDivisionError):
        await compute(lambda: 1 // 0, "another")


async def test_a_cancelled_caller_leaves_its_thread_running() -> None:
    """Cancellation does not wait; the next computation starts when the thread has ended."""
    compute, may_finish, steps = WorkerThread(), threading.Event(), list[str]()
    started = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def slow() -> None:
        token.run_sync_soon(started.set)
        assert may_finish.wait(30)
        steps.append("slow")

    async def given_up(task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await compute(slow, "slow")

    async def second() -> None:
        await compute(lambda: steps.append("second"), "second")

    async with trio.open_nursery() as nursery:
        scope = await nursery.start(given_up)
        await started.wait()
        scope.cancel()
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        assert not steps
        may_finish.set()
    assert steps == ["slow", "second"]


async def test_without_a_thread_it_is_a_checkpoint() -> None:
    """In virtual time the event loop computes itself, between a checkpoint and its end."""
    with trio.testing.assert_checkpoints():
        assert await compute_inline(threading.current_thread, "") is threading.current_thread()
    with trio.move_on_after(0):
        await compute_inline(lambda: pytest.fail("called after a cancellation"), "")


def raising() -> None:
    """Raise."""
    raise ZeroDivisionError("on purpose")


async def test_a_call_in_a_thread_has_its_result() -> None:
    """Tasks wait for the call; it has the result and runs in the given context variables."""
    number: ContextVar[int] = ContextVar("number", default=1)
    context = copy_context()
    context.run(number.set, 2)
    call = ThreadCall(number.get, context, partial(post_to, trio.lowlevel.current_trio_token()))
    threading.Thread(target=call.run).start()
    await call.wait()
    assert call.ended
    assert call.result() == 2


async def test_a_call_in_a_thread_raises_its_exception() -> None:
    """The task that asks for the result gets the exception, as for a thread that cannot start."""
    post = partial(post_to, trio.lowlevel.current_trio_token())
    call = ThreadCall(raising, copy_context(), post)
    threading.Thread(target=call.run).start()
    await call.wait()
    with pytest.raises(ZeroDivisionError):
        call.result()
    call = ThreadCall(raising, copy_context(), post)
    call.fail(RuntimeError("no more threads"))
    await call.wait()
    with pytest.raises(RuntimeError):
        call.result()


def test_the_exception_of_a_call_is_raised_in_its_thread_if_the_loop_has_ended() -> None:
    """No task can raise it any more, so ``threading.excepthook`` reports it, with its cause."""
    cause = LookupError("cause")

    def fail() -> None:
        raise ZeroDivisionError from cause

    call = ThreadCall(fail, copy_context(), lambda _: False)
    with pytest.raises(ZeroDivisionError) as raised:
        call.run()
    assert raised.value.__cause__ is cause


def test_nothing_is_posted_to_a_loop_that_has_ended() -> None:
    """A loop that has ended takes no functions; ``post_to`` says so."""

    async def token() -> trio.lowlevel.TrioToken:
        await trio.lowlevel.checkpoint()
        return trio.lowlevel.current_trio_token()

    assert not post_to(trio.run(token), int)


def test_the_stack_of_a_thread() -> None:
    """A thread that runs has a stack, one that has ended has none."""
    assert "test_the_stack_of_a_thread" in (stack_of(threading.current_thread()) or "")
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert stack_of(thread) is None
