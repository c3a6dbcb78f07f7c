"""The states of members and of the coordinator: faults wait for them, and coverage counts them.

A member's state follows from the events that kgroup reports in its process; the coordinator's is
looked up when it is needed.
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
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.types import Cause

ABSENT: Final = "absent"
FROZEN: Final = "frozen"
SEARCHING: Final = "searching"
JOINING: Final = "joining"
SYNCING: Final = "syncing"
RUNNING: Final = "running"
DRAINING: Final = "draining"
LEAVING: Final = "leaving"

#: The states of a member, each with its meaning.
MEMBER_STATES: Final[Mapping[str, str]] = {
    ABSENT: "its program is not running",
    FROZEN: "its program is frozen, whatever it was doing",
    SEARCHING: "it is finding the coordinator, or waiting before it joins again",
    JOINING: "its JoinGroup request is on its way, or waits at the coordinator",
    SYNCING: "it has joined, and is assigning partitions, syncing, or fetching offsets",
    RUNNING: "its generation is running",
    DRAINING: "its generation is draining",
    LEAVING: "its group was closed; it is leaving the group",
}

AWAY: Final = "away"
LOADING: Final = "loading"
DEAD: Final = GroupState.DEAD.value

#: The states of the coordinator, each with its meaning: of the group's shard, then of the group.
COORDINATOR_STATES: Final[Mapping[str, str]] = {
    AWAY: "no broker coordinates the group",
    LOADING: "its new coordinator is loading it",
    DEAD: "its coordinator does not have the group",
    GroupState.EMPTY.value: "the group has no members",
    GroupState.PREPARING_REBALANCE.value: "JoinGroup requests wait until all members have joined",
    GroupState.COMPLETING_REBALANCE.value: "SyncGroup requests wait for the leader's assignment",
    GroupState.STABLE.value: "every member can get its assignment",
}


def _after_generation(entry: history.EventReported) -> str:
    event = entry.event
    assert isinstance(event, GenerationEnded)
    return LEAVING if event.end.cause is Cause.CLOSED else SEARCHING


#: The state that an event puts a member in.
_BY_EVENT: Final[Mapping[type, Callable[[history.EventReported], str]]] = {
    Joining: lambda _: JOINING,
    Joined: lambda _: SYNCING,
    Assigned: lambda _: RUNNING,
    GenerationDraining: lambda _: DRAINING,
    GenerationEnded: _after_generation,
    Left: lambda _: LEAVING,
}


@final
class States:
    """The current states of all programs, kept up to date by the history.

    INVARIANT: a task that waits for a moment is woken by the very entry that brings it about, so
    that it acts while the group is still in that state.
    """

    def __init__(self, coordinator: Callable[[], str]) -> None:
        """Begin with no program.

        Args:
            coordinator: returns the state of the group at its coordinator.
        """
        self._coordinator = coordinator
        self._members: Final[defaultdict[str, str]] = defaultdict(lambda: ABSENT)
        self._frozen: Final[dict[str, None]] = {}
        self._waiting: Final[dict[trio.Event, Callable[[], bool]]] = {}

    @property
    def handlers(self) -> Mapping[type[HistoryEntry], Callable[[Any], None]]:
        """The handler for each kind of history entry."""
        return {
            history.ProcessStarted: self._process_started,
            history.ProcessEnded: self._process_ended,
            history.ProcessCrashed: self._process_ended,
            history.ProcessFrozen: self._process_frozen,
            history.ProcessThawed: self._process_thawed,
            history.EventReported: self._event_reported,
            history.GroupChanged: self._changed,
            history.CoordinatorMoved: self._changed,
            history.RequestHandled: self._request_handled,
        }

    @property
    def coordinator(self) -> str:
        """The state of the group at its coordinator."""
        return self._coordinator()

    def of(self, process: str) -> str:
        """The state of a member."""
        return FROZEN if process in self._frozen else self._members[process]

    def is_now(self, moment: Moment, processes: tuple[str, ...]) -> bool:
        """Whether the coordinator and any of these programs are in the states of a moment."""
        return (
            any(self.of(process) == moment.member for process in processes)
            and self.coordinator == moment.coordinator
        )

    async def wait_for(self, moment: Moment, processes: tuple[str, ...]) -> None:
        """Wait until the coordinator and any of these programs are in the states of a moment.

        Cancellation: the wait ends; nothing else changes.
        """
        await trio.lowlevel.checkpoint()
        while not self.is_now(moment, processes):
            event = trio.Event()
            self._waiting[event] = lambda: self.is_now(moment, processes)
            try:
                await event.wait()
            finally:
                self._waiting.pop(event, None)

    # Handlers.

    def _process_started(self, entry: history.ProcessStarted) -> None:
        self._enter(entry.process, SEARCHING)

    def _process_ended(self, entry: history.ProcessEnded | history.ProcessCrashed) -> None:
        self._frozen.pop(entry.process, None)
        self._enter(entry.process, ABSENT)

    def _process_frozen(self, entry: history.ProcessFrozen) -> None:
        self._frozen[entry.process] = None
        self._wake_waiting()

    def _process_thawed(self, entry: history.ProcessThawed) -> None:
        self._frozen.pop(entry.process, None)
        self._wake_waiting()

    def _event_reported(self, entry: history.EventReported) -> None:
        state = _BY_EVENT.get(type(entry.event))
        if state is not None:
            self._enter(entry.process, state(entry))

    def _changed(self, _: HistoryEntry) -> None:
        self._wake_waiting()

    def _request_handled(self, entry: history.RequestHandled) -> None:
        # Nothing reports that a shard is away or loading; only the answers to requests show it.
        if entry.state == DEAD:
            self._wake_waiting()

    def _enter(self, process: str, state: str) -> None:
        if self._members[process] != state:
            self._members[process] = state
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for event, holds in list(self._waiting.items()):
            if holds():
                event.set()
