"""Where members and the coordinator stand: what faults wait for, and what coverage counts.

A member's state follows from the events that kgroup reports in its process; the coordinator's is
looked up when somebody wants it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import trio

from kgroup.broker.groups.states import GroupState
from kgroup.events import (
    Assigned,
    GenerationDraining,
    GenerationEnded,
    Joined,
    Joining,
    Left,
)
from kgroup.testing.simulation import history
from kgroup.testing.simulation.faults import Moment
from kgroup.testing.simulation.history import Fact
from kgroup.types import Cause

ABSENT: Final = "absent"
FROZEN: Final = "frozen"
SEARCHING: Final = "searching"
JOINING: Final = "joining"
SYNCING: Final = "syncing"
RUNNING: Final = "running"
DRAINING: Final = "draining"
LEAVING: Final = "leaving"

#: The states of a member, each with what it means.
MEMBER_STATES: Final[Mapping[str, str]] = {
    ABSENT: "its program does not run",
    FROZEN: "its program stands still, whatever it was doing",
    SEARCHING: "it looks for the coordinator, or waits before it joins again",
    JOINING: "its JoinGroup is on the way, or parked",
    SYNCING: "it has joined; it computes, syncs, or fetches offsets",
    RUNNING: "it has a generation that runs",
    DRAINING: "its generation ends",
    LEAVING: "its generation has ended for good; it leaves the group",
}

AWAY: Final = "away"
LOADING: Final = "loading"
DEAD: Final = GroupState.DEAD.value

#: The states of the coordinator, each with what it means: of the group's shard, then of the group.
COORDINATOR_STATES: Final[Mapping[str, str]] = {
    AWAY: "no broker coordinates the group",
    LOADING: "its new coordinator reads what is written of it",
    DEAD: "its coordinator has no such group (yet)",
    GroupState.EMPTY.value: "it has no members",
    GroupState.PREPARING_REBALANCE.value: "joins are parked",
    GroupState.COMPLETING_REBALANCE.value: "syncs are parked",
    GroupState.STABLE.value: "its assignment is known",
}


def _after_a_generation(fact: history.Told) -> str:
    event = fact.event
    assert isinstance(event, GenerationEnded)
    return LEAVING if event.end.cause is Cause.CLOSED else SEARCHING


#: The state that an event puts a member in.
_BY_EVENT: Final[Mapping[type, Callable[[history.Told], str]]] = {
    Joining: lambda _: JOINING,
    Joined: lambda _: SYNCING,
    Assigned: lambda _: RUNNING,
    GenerationDraining: lambda _: DRAINING,
    GenerationEnded: _after_a_generation,
    Left: lambda _: LEAVING,
}


@final
class States:
    """The states of all programs, kept up with the facts.

    INVARIANT: whoever waits for a moment is woken by the fact that brings it about, so that what
    they do then happens in that state.
    """

    def __init__(self, coordinator: Callable[[], str]) -> None:
        """Begin with no program.

        Args:
            coordinator: looks up the state of the group at its coordinator.
        """
        self._coordinator = coordinator
        self._members: Final[defaultdict[str, str]] = defaultdict(lambda: ABSENT)
        self._frozen: Final[dict[str, None]] = {}
        self._waiting: Final[dict[trio.Event, Callable[[], bool]]] = {}

    @property
    def reactions(self) -> Mapping[type[Fact], Callable[[Any], None]]:
        """What to do with each kind of fact."""
        return {
            history.ProcessStarted: self._begins,
            history.ProcessEnded: self._ends,
            history.ProcessCrashed: self._ends,
            history.ProcessFrozen: self._freezes,
            history.ProcessThawed: self._thaws,
            history.Told: self._told,
            history.GroupChanged: self._changed,
            history.CoordinatorMoved: self._changed,
            history.Judged: self._judged,
        }

    @property
    def coordinator(self) -> str:
        """The state of the group at its coordinator."""
        return self._coordinator()

    def of(self, process: str) -> str:
        """The state of a member."""
        return FROZEN if process in self._frozen else self._members[process]

    def is_now(self, moment: Moment, processes: tuple[str, ...]) -> bool:
        """Whether any of these programs, and the coordinator, are in the states of a moment."""
        return (
            any(self.of(process) == moment.member for process in processes)
            and self.coordinator == moment.coordinator
        )

    async def wait_for(self, moment: Moment, processes: tuple[str, ...]) -> None:
        """Wait until any of these programs, and the coordinator, are in the states of a moment.

        Cancellation: nothing is left behind.
        """
        await trio.lowlevel.checkpoint()
        while not self.is_now(moment, processes):
            event = trio.Event()
            self._waiting[event] = lambda: self.is_now(moment, processes)
            try:
                await event.wait()
            finally:
                self._waiting.pop(event, None)

    # How states change.

    def _begins(self, fact: history.ProcessStarted) -> None:
        self._enter(fact.process, SEARCHING)

    def _ends(self, fact: history.ProcessEnded | history.ProcessCrashed) -> None:
        self._frozen.pop(fact.process, None)
        self._enter(fact.process, ABSENT)

    def _freezes(self, fact: history.ProcessFrozen) -> None:
        self._frozen[fact.process] = None
        self._look()

    def _thaws(self, fact: history.ProcessThawed) -> None:
        self._frozen.pop(fact.process, None)
        self._look()

    def _told(self, fact: history.Told) -> None:
        state = _BY_EVENT.get(type(fact.event))
        if state is not None:
            self._enter(fact.process, state(fact))

    def _changed(self, _: Fact) -> None:
        self._look()

    def _judged(self, fact: history.Judged) -> None:
        # The only sign that a shard is away or loading is how requests are answered.
        if fact.state == DEAD:
            self._look()

    def _enter(self, process: str, state: str) -> None:
        if self._members[process] != state:
            self._members[process] = state
            self._look()

    def _look(self) -> None:
        for event, has_come in list(self._waiting.items()):
            if has_come():
                event.set()
