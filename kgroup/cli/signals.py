"""Ctrl-C and SIGTERM: they end a command with the status that shells expect, 130 and 143.

INVARIANT: a signal leaves a command by ``SystemExit``, so that what it has open is closed, and only
where that is safe: not in trio's own code, and not between printing records and marking them.
"""

from __future__ import annotations

import signal
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

import trio

__all__ = ["ended_by_signals", "run_whole", "signals_held"]

_SIGNALLED: Final = 128
"""Shells report a process that a signal ended as this plus the signal's number."""

T = TypeVar("T")


def run_whole(work: Callable[[], Awaitable[T]]) -> T:
    """Run an async function with trio; a signal waits for its end, and a second one does not."""
    with signals_held() as end_if_signalled:
        found = trio.run(work)
        end_if_signalled()
        return found


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM leave the block by an exception, and then end the process quietly."""
    with _handling(_end):
        yield


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM wait until the function is called that the block gets.

    So that what a command has begun is done as a whole. A second signal does not wait: what was
    begun may hang in a pipe that is not read.
    """
    received: list[int] = []

    def hold(number: int, frame: types.FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            _end(number, frame)

    def end() -> None:
        if received:
            _end(received[0], None)

    with _handling(hold):
        yield end


@contextmanager
def _handling(handler: Callable[[int, types.FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals; a program that calls this handles its own
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def _end(number: int, frame: types.FrameType | None) -> NoReturn:
    del frame
    # A further one must not interrupt what is now being closed.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_SIGNALLED + number)
