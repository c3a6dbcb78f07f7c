"""Signals end a command with the status that shells expect, where it is safe."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from kgroup.cli.signals import ended_by_signals, run_whole, signals_held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_its_status(number: signal.Signals) -> None:
    """What the command has open is closed, and there is no traceback."""
    closed = False
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            closed = True
    assert ended.value.code == 128 + number
    assert closed


def test_a_signal_waits_for_what_was_begun() -> None:
    """The first one takes effect where the command allows it, a second one at once."""
    begun: list[bool] = []
    with pytest.raises(SystemExit) as ended, signals_held() as end_if_signalled:
        end_if_signalled()
        os.kill(os.getpid(), signal.SIGTERM)
        begun.append(True)
        end_if_signalled()
    assert begun
    assert ended.value.code == 143
    with pytest.raises(SystemExit), signals_held():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()


def test_a_signal_does_not_interrupt_trio() -> None:
    """The async function ends first, and its result is not needed any more."""
    ended: list[bool] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await trio.lowlevel.checkpoint()
        ended.append(True)

    with pytest.raises(SystemExit) as left:
        run_whole(work)
    assert left.value.code == 130
    assert ended
