"""Cancels a test that hangs in trio, so that it does not harm the tests after it.

pytest-timeout's signal handler raises at whatever point the event loop has reached, and leaves
trio's run half alive in this thread. Here the signal first cancels the run from within and shows
where each task waits. Only if the run does not end within ``GRACE`` seconds, pytest-timeout's own
handler interrupts it.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Final

import pytest
import trio

GRACE: Final = 5.0


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Let pytest-timeout arm its signal, then put a handler in front of its own."""
    armed = yield
    break_off = signal.getsignal(signal.SIGALRM)
    cancelled = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal cancelled
        if trio.lowlevel.in_trio_run() and not cancelled:
            cancelled = True
            signal.setitimer(signal.ITIMER_REAL, GRACE)
            trio.lowlevel.current_trio_token().run_sync_soon(cancel_run)
        elif callable(break_off):
            break_off(number, frame)

    if callable(break_off):
        signal.signal(signal.SIGALRM, handle)
    return armed


def cancel_run() -> None:
    """Print where every task waits, and end trio's run by the crash of a system task."""
    root = trio.lowlevel.current_root_task()
    for task in tasks_below(root) if root else ():
        stack = traceback.StackSummary.extract(task.iter_await_frames())
        sys.stderr.write(f"\n{task.name} waits at\n{''.join(stack.format())}")
    trio.lowlevel.spawn_system_task(crash)


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """A task and every task in its nurseries."""
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from tasks_below(child)


async def crash() -> None:
    """Raise the error that the failed test shows."""
    msg = "Timeout: the test took too long; what its tasks waited for is in its standard error"
    raise TimeoutError(msg)
