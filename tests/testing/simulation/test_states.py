"""A member's state follows from what kgroup reports in its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from kgroup import events
from kgroup.testing.simulation import history
from kgroup.testing.simulation.states import COORDINATOR_STATES, MEMBER_STATES, States
from kgroup.types import Assignment, Cause, End

WHO: Final[dict[str, Any]] = {"at": 1.0, "process": "m1", "life": 1}


def told(kind: Callable[..., events.Event], **fields: Any) -> history.EventReported:
    """kgroup reports an event."""
    event = kind(group_id="group", member_id="m1-1", generation_id=1, epoch=1, **fields)
    return history.EventReported(**WHO, event=event)


def ended(cause: Cause) -> history.EventReported:
    """A generation has ended."""
    return told(events.GenerationEnded, end=End(cause), cut_short=False)


STEPS: Final = (
    (history.ProcessStarted(**WHO, group_instance_id=None), "searching"),
    (told(events.Joining, reason=""), "joining"),
    (told(events.Joined, leader=False, assignor="range", members=0), "syncing"),
    (told(events.Assigned, assignment=Assignment(()), positions={}), "running"),
    (told(events.GenerationDraining, end=End(Cause.REBALANCE), deadline=1.0), "draining"),
    (ended(Cause.REBALANCE), "searching"),
    (history.ProcessFrozen(**WHO), "frozen"),
    (history.ProcessThawed(**WHO), "searching"),
    (ended(Cause.CLOSED), "leaving"),
    (history.ProcessEnded(**WHO, error=None), "absent"),
)


def test_a_member_goes_through_its_states() -> None:
    """Each report puts it in the state that it is about; together they are all there are."""
    states = States(lambda: "Stable")
    assert states.of("m1") == "absent"
    for entry, state in STEPS:
        states.handlers[type(entry)](entry)
        assert states.of("m1") == state
        assert states.of("m2") == "absent"
    assert {state for _, state in STEPS} == set(MEMBER_STATES)


def test_a_crash_ends_a_frozen_program_too() -> None:
    """Whoever is started in its place is not frozen."""
    states = States(lambda: "Stable")
    for entry in (STEPS[0][0], STEPS[6][0], history.ProcessCrashed(**WHO)):
        states.handlers[type(entry)](entry)
    assert states.of("m1") == "absent"


@pytest.mark.parametrize("state", COORDINATOR_STATES)
def test_the_coordinators_state_is_looked_up(state: str) -> None:
    """It is never older than the question."""
    assert States(lambda: state).coordinator == state
