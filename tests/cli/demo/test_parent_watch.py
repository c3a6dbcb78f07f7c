"""What ends a process of the demo that does not end by itself."""

from __future__ import annotations

import subprocess
import sys

from kgroup.cli.demo import parent_watch

HELD = """
import sys, time
from kgroup.cli.demo import parent_watch
parent_watch.hold({seconds})
print("held", flush=True)
{then}
"""
BLOCKS = "os.set_blocking(0, False); time.sleep(600)"
ENDS = "select.select([0], [], [])"


def ended(seconds: float, then: str) -> tuple[int, str]:
    """The exit status and the last words of a process whose standard input was closed."""
    program = "import os, select\n" + HELD.format(seconds=seconds, then=then)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        _, errors = process.communicate()
    return process.returncode, errors


def test_a_process_that_goes_on_is_ended() -> None:
    """After its seconds, with a status and words that say so; the descriptor may never block."""
    status, errors = ended(0.1, BLOCKS)
    assert status == parent_watch.STATUS
    assert "it did not end within 0.1 s" in errors


def test_a_process_that_ends_is_left_alone() -> None:
    """It ends with its own status, without waiting for the seconds."""
    assert ended(600, ENDS) == (0, "")
