"""The states of a generation: the effect of every signal in every state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.generation.states import TRANSITIONS, Signal, State, StateMachine
from kgroup.types import Cause, End

RUNNING, DRAINING, ENDED = State.RUNNING, State.DRAINING, State.ENDED

#: The state that follows each state and signal, written from the design and not from the code.
FOLLOWS = {
    (RUNNING, Signal.REVOKED): DRAINING,
    (RUNNING, Signal.LOST): ENDED,
    (RUNNING, Signal.FINISHED): RUNNING,
    (DRAINING, Signal.REVOKED): DRAINING,
    (DRAINING, Signal.LOST): ENDED,
    (DRAINING, Signal.FINISHED): ENDED,
    (ENDED, Signal.REVOKED): ENDED,
    (ENDED, Signal.LOST): ENDED,
    (ENDED, Signal.FINISHED): ENDED,
}
REVOKED, LOST = End(Cause.REBALANCE), End(Cause.MEMBERSHIP_LOST)
TO = {RUNNING: [], DRAINING: [REVOKED], ENDED: [LOST]}


def brought_to(state: State) -> StateMachine:
    """A state machine in this state."""
    life = StateMachine()
    for end in TO[state]:
        life.signal(end)
    assert life.state is state
    return life


@pytest.mark.parametrize(("state", "signal"), list(FOLLOWS))
def test_every_state_with_every_signal(state: State, signal: Signal) -> None:
    """The next state is the expected one; a signal that changes nothing records nothing."""
    life = brought_to(state)
    before = life.end
    if signal is Signal.FINISHED:
        life.finish()
        assert life.end is before
    else:
        end = End(Cause.CLOSED) if signal is Signal.REVOKED else End(Cause.FENCED)
        changed = life.signal(end)
        assert changed is (FOLLOWS[state, signal] is not state)
        assert life.end is (end if changed else before)
    assert life.state is FOLLOWS[state, signal]


def test_the_table_has_only_changes() -> None:
    """The table has a row for each change of state and no other."""
    assert {key: state for key, state in FOLLOWS.items() if state is not key[0]} == TRANSITIONS


@given(st.lists(st.sampled_from([*Cause, None])))
def test_any_sequence_of_signals(signals: list[Cause | None]) -> None:
    """The state never goes back; the end is the first one, or a loss that replaced it."""
    order = [RUNNING, DRAINING, ENDED]
    life = StateMachine()
    expected: End | None = None
    for cause in signals:
        before = life.state
        if cause is None:
            life.finish()
        else:
            end = End(cause)
            if before is RUNNING or (before is DRAINING and not cause.can_commit):
                expected = end
            life.signal(end)
        assert order.index(life.state) >= order.index(before)
        assert life.end is expected
    assert (life.state is RUNNING) is (expected is None)
