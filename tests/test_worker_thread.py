"""Computing beside the event loop: in one named thread, which can be given up."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from kgroup.worker_thread import WorkerThread, compute_inline


async def test_it_is_a_thread_with_a_name() -> None:
    """What is returned and raised comes back; the thread is not this one."""
    compute = WorkerThread()
    assert await compute(lambda: threading.current_thread().name, "a name") == "a name"
    with pytest.raises(ZeroDivisionError):
        await compute(lambda: 1 // 0, "another")


async def test_one_that_was_given_up_is_waited_for() -> None:
    """Giving up takes no time; the next computation begins when the thread has ended."""
    compute, go_on, steps = WorkerThread(), threading.Event(), list[str]()
    started = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def slow() -> None:
        token.run_sync_soon(started.set)
        assert go_on.wait(30)
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
        go_on.set()
    assert steps == ["slow", "second"]


async def test_without_a_thread_it_is_a_checkpoint() -> None:
    """In virtual time the event loop computes itself, between a checkpoint and its end."""
    with trio.testing.assert_checkpoints():
        assert await compute_inline(threading.current_thread, "") is threading.current_thread()
    with trio.move_on_after(0):
        await compute_inline(lambda: pytest.fail("called after a cancellation"), "")
