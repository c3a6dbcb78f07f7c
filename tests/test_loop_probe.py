"""Whether an event loop makes progress, as another thread finds out."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from kgroup.loop_probe import LoopProbe

PATIENCE = 100.0


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        """The time."""
        return self.at


async def test_a_blocked_loop_is_seen_by_the_second_probe() -> None:
    """The first schedules a call; the next says since when it waits, until the loop runs again."""
    time = Time()
    probe = LoopProbe(time.now)
    assert probe.blocked() == 0  # in the loop, which therefore runs
    seen: list[float | None] = []

    def probe_it() -> None:
        seen.append(probe.blocked())
        time.at = 30.0
        seen.append(probe.blocked())

    beside = threading.Thread(target=probe_it)
    beside.start()
    beside.join(PATIENCE)  # which blocks the loop
    assert seen == [0, 30]
    with trio.fail_after(PATIENCE):
        while probe._sent is not None:
            await trio.lowlevel.checkpoint()
    assert await trio.to_thread.run_sync(probe.blocked) == 0


def test_a_loop_that_has_ended() -> None:
    """None says so, however often it is asked and however long ago that was."""
    time = Time()

    async def main() -> LoopProbe:
        await trio.lowlevel.checkpoint()
        return LoopProbe(time.now)

    async def again(probe: LoopProbe) -> float | None:
        await trio.lowlevel.checkpoint()
        return probe.blocked()

    probe = trio.run(main)
    assert probe.blocked() is None
    time.at = 30.0
    assert probe.blocked() is None
    assert trio.run(again, probe) is None  # another loop in the same thread


async def test_a_forked_process_has_no_such_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is scheduled there, which could wait for a thread that only the parent has."""
    probe = LoopProbe(time.monotonic)
    monkeypatch.setattr("os.getpid", lambda: -1)
    monkeypatch.setattr("kgroup.loop_probe.post_to", None)
    assert await trio.to_thread.run_sync(probe.blocked) is None
