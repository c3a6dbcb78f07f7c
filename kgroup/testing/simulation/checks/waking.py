"""In which time a program that was frozen learns what has happened to its membership meanwhile.

It learns that from the answer to its first heartbeat, or to the SyncGroup that has to confirm that
answer. Before the heartbeat it may have to connect and to log in again: while it slept, brokers
closed what was idle, and logins expired. On a slow network these round trips take seconds. A fault
of its network or of a broker, at the time when it wakes, may delay each of them for a request
time-out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

from kgroup.testing.simulation.checks.base import EntryHandler
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.faults import (
    ALL,
    BrokerDies,
    BrokerStops,
    CoordinatorMoves,
    Fault,
    SlowBroker,
    SlowNetwork,
    Split,
    Stall,
)
from kgroup.testing.simulation.history import FaultBegan, FaultEnded
from kgroup.testing.simulation.logins import user_of
from kgroup.testing.simulation.plan import Plan

SLACK: Final = 1.0
"""Seconds that a program may take for what no fault delays, beside its round trips."""
_ROUND_TRIPS: Final = 7
"""Connection, ApiVersions, SaslHandshake, SCRAM's two SaslAuthenticate, Heartbeat, SyncGroup."""
_DELAYS_ANSWERS: Final = (
    Split,
    Stall,
    SlowNetwork,
    SlowBroker,
    BrokerStops,
    BrokerDies,
    CoordinatorMoves,
)


@final
class Waking:
    """Follows the faults that delay answers, for the checks of programs that wake."""

    def __init__(self, plan: Plan, views: Views) -> None:
        self._views = views
        self._usual: Final = SLACK + _ROUND_TRIPS * 2 * plan.latency.most
        """Seconds until it has learnt what happened, if no fault delays that."""
        self._delays: Final[dict[Fault, tuple[float, float]]] = {}
        """When each fault that may delay answers began and ended."""

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """The handler for each kind of entry that it needs."""
        return {FaultBegan: self._fault_began, FaultEnded: self._fault_ended}

    def is_unaware(self, held: HeldGeneration, at: float) -> bool:
        """Whether a program wakes then, and may not have learnt what happened while it slept."""
        life = self._views.programs.life(*held.life)
        return at - life.thawed_at < self._longest(held, life.thawed_at)

    def _longest(self, held: HeldGeneration, thawed_at: float) -> float:
        names = (ALL, user_of(held.life[0]))
        delayed = any(
            began < thawed_at + self._usual and ended > thawed_at
            for fault, (began, ended) in self._delays.items()
            if getattr(fault, "process", ALL) in names
        )
        if delayed:
            return 2 * self._views.programs.settings(held).request_timeout + self._usual
        return self._usual

    def _fault_began(self, entry: FaultBegan) -> None:
        if isinstance(entry.fault, _DELAYS_ANSWERS):
            self._delays[entry.fault] = entry.at, math.inf

    def _fault_ended(self, entry: FaultEnded) -> None:
        if entry.fault in self._delays:
            began, _ = self._delays[entry.fault]
            self._delays[entry.fault] = began, entry.at
