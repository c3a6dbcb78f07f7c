"""Runs a program on Spark inside this process, on the session that its tests share.

A process of its own would need another JVM. For the program nothing differs: it is ``__main__``,
has its arguments, gets a session from the builder, and ends at SIGTERM.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

from tests.conftest import ROOT


def run_inside(program: str, *arguments: str, story: Callable[[], None]) -> None:
    """Run a program in this thread until a story, which runs in another thread, has returned.

    Args:
        program: its path below the project's folder.
        arguments: its arguments.
        story: when it returns or raises, the program gets SIGTERM.

    Raises:
        AssertionError: the story returned before the program had a handler for SIGTERM.
    """
    # The story's thread is waited for first: its SIGTERM must not find the process's own handler.
    with _as_main(program, *arguments), ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(_then_stop, story)
        runpy.run_path(str(ROOT / program), run_name="__main__")
        outcome.result()


def _then_stop(story: Callable[[], None]) -> None:
    try:
        story()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _as_main(program: str, *arguments: str) -> Iterator[None]:
    """Give the program its arguments, and SIGTERM once it has a handler for it."""
    argv, handler = sys.argv, signal.signal(signal.SIGTERM, _unexpected)
    sys.argv = [program, *arguments]
    try:
        yield
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)


def _unexpected(number: int, frame: FrameType | None) -> None:
    raise AssertionError("the story was over before the program wanted SIGTERM")
