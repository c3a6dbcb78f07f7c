"""The last resort by which a process of the demo ends when the demo has ended.

Each process closes by itself when its standard input does, which is also how it learns that the
conductor was killed. Should it then not come to its end, because a library or a bug holds it, a
thread ends it: nothing of a demo stays on a machine.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from typing import Final

STATUS: Final = 70
"""The exit status of a process that had to be ended (``EX_SOFTWARE``)."""


def hold(seconds: float) -> None:
    """From now on the process ends this long after its standard input has, if not before."""
    number = os.dup(sys.stdin.fileno())
    threading.Thread(target=_watch, args=(number, seconds), name="lifeline", daemon=True).start()


def _watch(number: int, seconds: float) -> None:
    while not _has_ended(number):
        select.select([number], [], [])
    time.sleep(seconds)
    sys.stderr.write(f"it did not end within {seconds:g} s of the demo's end, and is ended\n")
    sys.stderr.flush()
    os._exit(STATUS)


def _has_ended(number: int) -> bool:
    """Whether nobody holds the other end; trio has made the descriptor one that never blocks."""
    try:
        readable, _, _ = select.select([number], [], [], 0)
        return bool(readable) and not os.read(number, 1)
    except BlockingIOError:
        return False
