"""Runs a command that ends with the process that started it, even if that process is killed.

`run` starts this file by its path, as ``python child_of.py DESCRIPTOR GRACE COMMAND...``, and the
file starts the command. DESCRIPTOR is the reading end of a pipe whose writing end only the caller
has: the kernel closes it with the caller, after SIGKILL too, and the command is ended then. The
command has this process's standard streams. Its exit status is passed on; a command ended by a
signal has 128 plus the signal's number, as in a shell. For Linux and macOS.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

GRACE: Final = 5.0
"""Seconds between terminating the command and killing it."""
SIGNALLED: Final = 128


def run(
    command: Sequence[str],
    *,
    stdin: str,
    timeout: float,
    grace: float = GRACE,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture its output; it does not outlive this process.

    Args:
        command: the program and its arguments.
        stdin: text for its standard input.
        timeout: seconds until it is terminated.
        grace: seconds after which it is killed if it has not ended.
        env: its environment; this process's by default.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``timeout`` and was ended.
    """
    theirs, ours = os.pipe()
    try:
        # -I and -S: the script needs only the standard library, and starts in half the time.
        script = [sys.executable, "-I", "-S", __file__, str(theirs), str(grace)]
        process = subprocess.Popen(
            [*script, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
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
    """Run the command, and end it when the pipe is closed; returns its exit status."""
    process = subprocess.Popen(command)

    def end_with_caller() -> None:
        select.select([descriptor], [], [])
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()

    threading.Thread(target=end_with_caller, daemon=True).start()
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C reaches the command and the caller too, and they end
        return SIGNALLED - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
