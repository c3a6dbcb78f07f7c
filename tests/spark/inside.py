"""A program on Spark that runs inside this process, on the session that its tests share.

A process of its own would cost a JVM. To the program it is the same: it is ``__main__``, has its
arguments, gets a session from the builder, and ends at SIGTERM.
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
    """Run a program in this thread until what a story waits for, in another, has come to pass.

    Args:
        program: its path below the project's folder.
        arguments: its own.
        story: when it returns or fails the program is sent SIGTERM.

    Raises:
        AssertionError: the story was over before the program wanted SIGTERM.
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
    """The arguments are the program's, and so is SIGTERM once it wants it."""
    argv, handler = sys.argv, signal.signal(signal.SIGTERM, _unexpected)
    sys.argv = [program, *arguments]
    try:
        yield
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)


def _unexpected(number: int, frame: FrameType | None) -> None:
    raise AssertionError("the story was over before the program wanted SIGTERM")
