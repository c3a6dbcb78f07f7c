"""The states of a generation, and what leads from one to another.

The table is pure: `Lifecycle` signals what happens, and acts on the state that follows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final

from kgroup.types import End


@final
class State(enum.Enum):
    """The state of a generation."""

    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"


@final
class Signal(enum.Enum):
    """What changes the state of a generation."""

    REVOKED = "an end after which commits still succeed"
    LOST = "an end after which commits can only fail"
    FINISHED = "all tasks have ended"


#: From each state, what each signal leads to. A signal that a state does not name changes nothing:
#: the first end is the recorded one.
TRANSITIONS: Final[Mapping[tuple[State, Signal], State]] = {
    (State.RUNNING, Signal.REVOKED): State.DRAINING,
    (State.RUNNING, Signal.LOST): State.ENDED,
    (State.DRAINING, Signal.LOST): State.ENDED,
    (State.DRAINING, Signal.FINISHED): State.ENDED,
}


@final
class StateMachine:
    """The state of one generation and the end that was recorded. Without I/O."""

    def __init__(self) -> None:
        self.state = State.RUNNING
        self.end: End | None = None

    def signal(self, end: End) -> bool:
        """Record an end; True if it changed the state.

        The first end is kept, except that a loss while draining replaces it: from then on the loss
        is why commits fail.
        """
        kind = Signal.REVOKED if end.can_commit else Signal.LOST
        following = TRANSITIONS.get((self.state, kind))
        if following is None:
            return False
        self.state = following
        self.end = end
        return True

    def finish(self) -> None:
        """Enter ENDED after a drain, because all tasks have ended."""
        self.state = TRANSITIONS.get((self.state, Signal.FINISHED), self.state)
