"""Runs a command and ends it when the process that wanted it is gone, however it went.

Run by path, as ``python tether.py DESCRIPTOR COMMAND...``, with nothing of kgroup loaded.
DESCRIPTOR is the reading end of a pipe whose other end only that process has: the kernel closes it
with the process, also after SIGKILL. The command has this process's standard streams; its exit
status is handed on, one that a signal ended as 128 plus the signal's number.

`run` is the other side. For Linux and macOS.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

GRACE: Final = 5.0
"""Seconds between asking the command to end and killing it."""
SIGNALLED: Final = 128


def run(
    command: Sequence[str],
    *,
    stdin: str,
    timeout: float,
    grace: float = GRACE,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with its output captured; it does not outlive this process.

    Args:
        command: the program and its arguments.
        stdin: text for its standard input.
        timeout: seconds until it is ended.
        grace: seconds that it then gets before it is killed.

    Raises:
        subprocess.TimeoutExpired: it was ended because it took longer.
    """
    theirs, ours = os.pipe()
    try:
        # -I and -S: the script needs the standard library alone, and starts in half the time.
        tether = [sys.executable, "-I", "-S", __file__, str(theirs), str(grace)]
        process = subprocess.Popen(
            [*tether, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[theirs],
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    with process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired as error:
            os.close(ours)
            ours = -1
            error.cmd = list(command)
            process.communicate()
            raise
        finally:
            if ours >= 0:
                os.close(ours)
    return subprocess.CompletedProcess(list(command), process.returncode, output, errors)


def main(descriptor: int, grace: float, command: Sequence[str]) -> int:
    """Run the command beside the pipe; its exit status."""
    process = subprocess.Popen(command)

    def watch() -> None:
        select.select([descriptor], [], [])
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()

    threading.Thread(target=watch, daemon=True).start()
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C went to the command too, and to the process that closes the pipe
        return SIGNALLED - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
