"""Plans and outcomes for tests that run no simulation, or a small one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgroup.testing.simulation import MemberPlan, Outcome, Plan, Scenario
from kgroup.testing.simulation.checks import Violation
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.network import Latency

#: Two virtual minutes of two members and one broker.
SMALL = Scenario(members=2, brokers=1, duration=120.0, topics={"orders": 2})


def a_plan(**changes: Any) -> Plan:
    """A plan of two minutes with two members and without faults."""
    fields: dict[str, Any] = {
        "seed": 7,
        "duration": 120.0,
        "brokers": 1,
        "topics": {"orders": 2},
        "members": (MemberPlan(name="m1", start_at=0.0), MemberPlan(name="m2", start_at=0.5)),
        "config": {"session_timeout": 10.0, "rebalance_timeout": 20.0},
        "broker_settings": {"group.initial.rebalance.delay.ms": 0},
        "latency": Latency(),
        "records_every": 2.0,
        "records_at_once": 5,
        "work": (0.001, 0.01),
        "faults": (),
    }
    return Plan(**{**fields, **changes})


def an_outcome(
    entries: Sequence[HistoryEntry] = (), violations: Sequence[Violation] = (), **changes: Any
) -> Outcome:
    """An outcome of `a_plan`."""
    return Outcome(plan=a_plan(**changes), history=tuple(entries), violations=tuple(violations))


def broken(number: int = 4, at: float = 50.0) -> Violation:
    """A violation."""
    return Violation(number=number, at=at, what="something that must not be")
