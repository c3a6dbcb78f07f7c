"""A member's state follows from the events in its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from kgroup import events
from kgroup.testing.simulation import history
from kgroup.testing.simulation.states import COORDINATOR_STATES, MEMBER_STATES, States
from kgroup.types import Assignment, Cause, End

WHO: Final[dict[str, Any]] = {"at": 1.0, "process": "m1", "life": 1}


def reported(kind: Callable[..., events.Event], **fields: Any) -> history.EventReported:
    """kgroup reports an event."""
    event = kind(group_id="group", member_id="m1-1", generation_id=1, epoch=1, **fields)
    return history.EventReported(**WHO, event=event)


def ended(cause: Cause) -> history.EventReported:
    """A generation has ended."""
    return reported(events.GenerationEnded, end=End(cause), cut_short=False)


STEPS: Final = (
    (history.ProcessStarted(**WHO, group_instance_id=None), "searching"),
    (reported(events.Joining, reason=""), "joining"),
    (reported(events.Joined, leader=False, assignor="range", members=0), "syncing"),
    (reported(events.Assigned, assignment=Assignment(()), start_offsets={}), "running"),
    (reported(events.GenerationDraining, end=End(Cause.REBALANCE), seconds=1.0), "draining"),
    (ended(Cause.REBALANCE), "searching"),
    (history.ProcessFrozen(**WHO), "frozen"),
    (history.ProcessThawed(**WHO), "searching"),
    (ended(Cause.CLOSED), "leaving"),
    (history.ProcessEnded(**WHO, error=None), "absent"),
)


def test_a_member_goes_through_its_states() -> None:
    """Each event puts the member into a state; together they are all states."""
    states = States(lambda: "Stable")
    assert states.of("m1") == "absent"
    for entry, state in STEPS:
        states.handlers[type(entry)](entry)
        assert states.of("m1") == state
        assert states.of("m2") == "absent"
    assert {state for _, state in STEPS} == set(MEMBER_STATES)


def test_a_crash_ends_a_frozen_program_too() -> None:
    """A program that is started after the crash of a frozen one is not frozen."""
    states = States(lambda: "Stable")
    for entry in (STEPS[0][0], STEPS[6][0], history.ProcessCrashed(**WHO)):
        states.handlers[type(entry)](entry)
    assert states.of("m1") == "absent"


@pytest.mark.parametrize("state", COORDINATOR_STATES)
def test_the_coordinators_state_is_looked_up(state: str) -> None:
    """It is looked up each time it is requested."""
    assert States(lambda: state).coordinator == state
