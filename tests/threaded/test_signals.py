"""Signals, and how a program with a threaded group exits; each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import pytest

from kgroup.worker import SAME_WISH
from tests.aio.secured import secured_broker
from tests.brokers import EMBEDDED, ROOT, Kafka
from tests.threaded.harness import SOON, Harness

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""

START = (
    # At the end of the path, so that an installed kgroup comes before the checkout's.
    f"import runpy, sys; sys.path.append({str(ROOT)!r});"
    " runpy.run_module('tests.threaded.program', run_name='__main__')"
)


@final
class Running:
    """A program that runs, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, line: str) -> None:
        """Read its output up to this line."""
        assert self.process.stdout is not None  # it is a pipe
        while line not in self.said:
            read = self.process.stdout.readline()
            assert read, f"it ended before it said {line!r}: {self.said}"
            self.said.append(read.rstrip())

    def ends(self) -> int:
        """Read the rest; its exit status."""
        assert self.process.stdout is not None  # it is a pipe
        self.said += self.process.stdout.read().split("\n")
        return self.process.wait(SOON)


@contextmanager
def program(name: str, here: Harness, *, errors: bool = False) -> Iterator[Running]:
    """Run one of ``program.py``; killed after ``SOON`` seconds, which then fails the test.

    Args:
        name: which.
        here: its topic and group.
        errors: whether its output includes the standard error.
    """
    command = [sys.executable, "-c", START]
    command += [name, here.bootstrap_servers, here.topic, here.group_id]
    more = subprocess.STDOUT if errors else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=more, text=True) as process:
        deadline = threading.Timer(SOON, process.kill)
        deadline.start()
        try:
            yield Running(process)
        finally:
            deadline.cancel()
            process.kill()


@pytest.mark.parametrize("name", ["loop", "body"])
def test_close_in_a_signal_handler(kafka: Kafka, name: str) -> None:
    """SIGTERM in next() or in the body: the current work is committed, and the member leaves."""
    here = Harness(kafka)
    here.create(1, 1)
    with program(name, here) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
    assert running.said[-4:] == ["committed", "left True", "over", ""]
    assert here.committed() == 1


@once
def test_a_signal_that_another_thread_receives(kafka: Kafka) -> None:
    """It closes a worker of threads, too: Python's handler runs in the main thread, in next()."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("signalled in a handler", here) as running:
        assert running.ends() == 0
    assert "left True" in running.said
    assert here.committed() == 1


def test_close_in_a_signal_handler_before_a_join() -> None:
    """SIGTERM during the lookup of a broker that does not respond ends the program at once."""
    nowhere = Harness(Kafka("nobody", "127.0.0.1:1"))
    with program("loop", nowhere) as running:
        running.until("failed")
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
    assert running.said[-2:] == ["over", ""]
    assert "left True" not in running.said


@once
def test_close_in_a_signal_handler_that_waits(kafka: Kafka) -> None:
    """If another thread owns the block, a handler in the main thread waits for its end."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("elsewhere", here) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
    assert running.said.index("left True") < running.said.index("closed")
    assert "over" in running.said
    assert here.committed() == 1


def test_an_interrupt_in_next(kafka: Kafka) -> None:
    """Control-C in next() drains and leaves, and the block raises it unchanged."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("interrupt", here) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0
    assert running.said[-4:] == ["committed", "left True", "interrupted", ""]
    assert here.committed() == 1


def test_a_program_that_ends_inside_the_block(kafka: Kafka) -> None:
    """The interpreter's exit drains the generation and leaves the group; it does not hang."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("exit inside", here) as running:
        assert running.ends() == 0
    assert running.said[-3:] == ["committed", "left True", ""]
    assert here.committed() == 1


@once
def test_a_program_that_ends_inside_two_blocks(kafka: Kafka) -> None:
    """The groups close together: none waits for the drain of another before its own begins."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("exit inside two", here) as running:
        assert running.ends() == 0
    assert sorted(running.said) == ["", "committed", "committed", "left True", "left True"]
    assert here.committed() == 1


@once
@pytest.mark.parametrize("name", ["run on trio", "run in threads", "run on asyncio"])
@pytest.mark.parametrize(
    ("second", "status"), [(signal.SIGTERM, 128 + 15), (signal.SIGINT, 128 + 2)]
)
def test_a_second_signal_ends_a_worker(
    kafka: Kafka, name: str, second: signal.Signals, status: int
) -> None:
    """It ends the drain: nothing is committed, the member leaves, and the status says which."""
    here = Harness(kafka)
    here.create(1, 1)
    with program(name, here, errors=True) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGTERM)
        running.until("draining")
        time.sleep(SAME_WISH)  # an earlier one is taken for the first signal's copy
        running.process.send_signal(second)
        assert running.ends() == status
    assert "left True" in running.said
    reason = f"was stopped at once by a second signal, {second.name}: records"
    assert any(f"the worker of group {here.group_id!r} {reason}" in line for line in running.said)
    assert here.committed() is None


@once
@pytest.mark.parametrize("name", ["cut on trio", "cut in threads", "cut on asyncio"])
def test_a_worker_whose_drain_is_cut_short(kafka: Kafka, name: str) -> None:
    """The line does not say that the work is finished; the records are read again."""
    here = Harness(kafka)
    here.create(1, 1)
    with program(name, here, errors=True) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
    said = "left, although functions still ran after 1 s (drain_timeout); records that it has"
    assert any(said in line for line in running.said)
    assert not any("has finished its work" in line for line in running.said)
    assert here.committed() is None


@once
@pytest.mark.parametrize(("name", "signals"), [("block on trio", 2), ("block on asyncio", 3)])
def test_a_function_that_blocks_its_loop(kafka: Kafka, name: str, signals: int) -> None:
    """The process is not deaf to signals: the second or the third one kills it."""
    here = Harness(kafka)
    here.create(1, 1)
    with program(name, here, errors=True) as running:
        running.until("holding")
        for _ in range(signals):
            assert running.process.poll() is None
            running.process.send_signal(signal.SIGTERM)
            time.sleep(3 * SAME_WISH)  # signals that come together count as one
        assert running.ends() == -signal.SIGTERM
    assert any("killed by another SIGTERM: a function blocks it" in one for one in running.said)


@once
def test_a_thread_that_outlasts_a_worker_of_asyncio(kafka: Kafka) -> None:
    """The member leaves in time, asyncio waits for the thread, and a second signal ends that."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("hang beside asyncio", here, errors=True) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGTERM)
        running.until("waiting")  # a drain of 1 s is over: the next signal is another wish
        assert "left True" in running.said
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == -signal.SIGTERM
    assert any("killed by another SIGTERM: a function blocks it" in one for one in running.said)


@once
def test_functions_that_end_the_process(kafka: Kafka) -> None:
    """The exit status is theirs, also if several of them exit."""
    here = Harness(kafka)
    here.create(2, 2)
    with program("exit in threads", here, errors=True) as running:
        assert running.ends() == 7


@once
@pytest.mark.parametrize("name", ["fail on trio", "fail in threads", "fail on asyncio"])
def test_a_worker_that_fails(kafka: Kafka, name: str) -> None:
    """One line says why, then comes the traceback of the program's function; the status is 1."""
    here = Harness(kafka)
    here.create(1, 1)
    with program(name, here, errors=True) as running:
        assert running.ends() == 1
    line = f"kgroup: the worker of group {here.group_id!r} failed: ValueError: the record is wrong"
    assert line in running.said
    assert "ValueError: the record is wrong" in running.said
    assert "KeyError: 'its cause'" in running.said
    assert any("for offset 0 of" in one for one in running.said)
    assert not any("Cancelled" in one or "During handling" in one for one in running.said)
    assert here.committed() is None


@once
def test_an_interrupt_of_asyncio(kafka: Kafka) -> None:
    """Control-C under asyncio.run cancels the handlers, and the member leaves."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("interrupt asyncio", here) as running:
        running.until("holding")
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0
    assert running.said == ["holding", "cancelled", "left True", "interrupted", ""]


@once
def test_a_program_that_ends_inside_a_block_of_asyncio(kafka: Kafka) -> None:
    """The interpreter's exit leaves the group, although asyncio's tasks cannot continue."""
    here = Harness(kafka)
    here.create(1, 1)
    with program("exit inside asyncio", here, errors=True) as running:
        assert running.ends() == 0
    assert "holding" in running.said
    assert any("left the group" in line for line in running.said)


def test_an_exit_that_needs_a_login() -> None:
    """It leaves with the login that it has: asyncio's loop, which has stopped, looks up none."""
    with (
        secured_broker() as broker,
        program("log in to leave", broker.harness, errors=True) as running,
    ):
        running.until("stopped")
        broker.cut()
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
    assert any("left the group" in line for line in running.said)


@once
def test_a_thread_left_behind_does_not_hold_up_the_exit(kafka: Kafka) -> None:
    """A handler that never ends is a daemon thread: the program exits."""
    here = Harness(kafka)
    here.create()
    with program("still_running", here) as running:
        assert running.ends() == 0
    assert running.said[-3:] == ["left True", "over", ""]


@once
def test_a_forked_process(kafka: Kafka) -> None:
    """A fork has no background thread: calls are refused there, and its exit does not hang."""
    here = Harness(kafka)
    here.create()
    with program("fork", here) as running:
        assert running.ends() == 0
    assert "UsageError" in running.said
    assert "child exited 3" in running.said
    assert running.said.count("left True") == 1
