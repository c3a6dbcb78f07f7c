"""How the status of a member is judged."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pytest

from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, HealthLimits, judge, limits_of
from kgroup.status import GroupStatus, Phase
from kgroup.types import TopicPartition

LIMITS = HealthLimits(blocked=10, hanging=60, unconfirmed=5, stuck=300)
RUNNING: Any = {"phase": Phase.RUNNING, "was_assigned": True, "lease": 20.0, "heartbeat_age": 0.5}
BETWEEN: Any = {"was_assigned": True, "without_generation": 61.0}

CASES: list[Any] = [
    (RUNNING, True, True, ""),
    ({**RUNNING, "batch_age": 299.0}, True, True, ""),
    ({**RUNNING, "batch_age": 301.0}, True, False, "a handler has had its batch for 301.0 s"),
    ({**RUNNING, "loop_blocked": 9.0}, True, True, ""),
    ({**RUNNING, "loop_blocked": 11.0}, False, False, "the event loop has not run for 11.0 s"),
    (
        {**RUNNING, "heartbeat_age": 6.0, "detail": "Heartbeat: refused"},
        True,
        False,
        "the coordinator has confirmed no heartbeat for 6.0 s (Heartbeat: refused)",
    ),
    ({**RUNNING, "heartbeat_age": 30.0, "lease": 0.0}, True, False, "the lease is over"),
    ({"phase": Phase.NOT_ENTERED}, True, False, "the group is not entered"),
    ({"phase": Phase.CLOSING, "detail": "SIGTERM"}, True, False, "the group is closing (SIGTERM)"),
    ({"phase": Phase.CLOSED, "detail": "SIGTERM"}, True, False, "the group is closed (SIGTERM)"),
    (
        {"phase": Phase.FAILED, "detail": "ValueError: x"},
        False,
        False,
        "an error closed the group: ValueError: x",
    ),
    (
        {"phase": Phase.FORKED, "detail": "this is a fork of process 7"},
        False,
        False,
        "the group is not in this process: this is a fork of process 7",
    ),
    ({"phase": Phase.IDLE}, True, False, "no generation yet: the program does not wait in next()"),
    (
        {"phase": Phase.JOINING, "detail": "JoinGroup: lost", "without_generation": 3.0},
        True,
        False,
        "no generation yet: it is joining the group, for 3.0 s (JoinGroup: lost)",
    ),
    ({**BETWEEN, "phase": Phase.JOINING, "without_generation": 59.0}, True, True, ""),
    (
        {**BETWEEN, "phase": Phase.JOINING},
        True,
        False,
        "no generation for 61.0 s: it is joining the group",
    ),
    ({**BETWEEN, "phase": Phase.STARTING}, True, False, "waits for its assignment"),
    ({**BETWEEN, "phase": Phase.DRAINING}, True, False, "the work of its last one has not ended"),
    (
        {**BETWEEN, "phase": Phase.DRAINING, "without_generation": 1000.0, "detail": "thread a"},
        False,
        False,
        "functions still run 1000.0 s after their generation began to end",
    ),
    ({**BETWEEN, "phase": Phase.IDLE}, True, False, "the program does not wait in next()"),
]


def test_a_function_without_a_limit_that_outlasts_its_generation() -> None:
    """Its batch cannot be committed any more, so that the member is not live soon after."""
    status = GroupStatus(group_id="g", phase=Phase.DRAINING, **BETWEEN)
    assert not judge(status, attrs.evolve(LIMITS, stuck=math.inf)).live
    assert judge(status, LIMITS).live


@pytest.mark.parametrize(("facts", "live", "ready", "reason"), CASES)
def test_what_is_live_and_ready(
    facts: dict[str, Any], live: bool, ready: bool, reason: str
) -> None:
    """A blocked loop, an error that closed the group and functions without end need a restart."""
    health = judge(GroupStatus(group_id="g", **facts), LIMITS)
    assert (health.live, health.ready) == (live, ready)
    assert reason in "; ".join(health.reasons)
    assert bool(health.reasons) is not ready


def test_several_reasons_are_all_given() -> None:
    """What is worst comes first."""
    status = GroupStatus(group_id="g", **{**RUNNING, "loop_blocked": 99.0, "batch_age": 999.0})
    health = judge(status, LIMITS)
    assert [reason.split()[1] for reason in health.reasons] == ["event", "handler"]


def test_health_is_json() -> None:
    """A probe's body has the reasons and the status."""
    lag = {TopicPartition("t", 0): 5, TopicPartition("t", 1): None}
    health = judge(GroupStatus(group_id="g", lag=lag, **RUNNING), LIMITS)
    written = json.loads(json.dumps(health.as_dict(), allow_nan=False))
    assert written == health.as_dict()
    assert written["status"]["lag"] == {"t-0": 5, "t-1": None}
    assert written["status"]["phase"] == "running"
    assert set(written["status"]) == set(attrs.fields_dict(GroupStatus))


def test_the_limits() -> None:
    """None means the default that the settings give, or no limit; other values are refused."""
    config = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"])
    given: Any = {
        "blocked_after": BLOCKED_AFTER,
        "hanging_after": None,
        "unconfirmed_after": None,
        "stuck_after": STUCK_AFTER,
    }
    assert limits_of(config, **given) == HealthLimits(
        blocked=BLOCKED_AFTER,
        hanging=config.rebalance_timeout,
        unconfirmed=config.session_timeout / 3,
        stuck=STUCK_AFTER,
    )
    none = limits_of(config, **{**given, "blocked_after": None, "stuck_after": None})
    assert (none.blocked, none.stuck) == (float("inf"), float("inf"))
    for name in given:
        with pytest.raises(ArgumentError, match=name):
            limits_of(config, **{**given, name: -1.0})


@pytest.mark.parametrize(("session", "interval", "limit"), [(30.0, 10.0, 20.0), (30.0, 4.0, 10.0)])
def test_a_heartbeat_that_is_not_due_is_not_missed(
    session: float, interval: float, limit: float
) -> None:
    """A heartbeat may come one and a half intervals after the last one, and needs its time."""
    config = GroupConfig(
        group_id="g",
        bootstrap_servers="h:1",
        topics=["t"],
        session_timeout=session,
        heartbeat_interval=interval,
    )
    limits = limits_of(
        config, blocked_after=None, hanging_after=None, unconfirmed_after=None, stuck_after=None
    )
    assert limits.unconfirmed == limit


def test_a_judgement_is_hashable() -> None:
    """A health and its status can be in sets and keys of dicts; equal ones are one."""
    lag = {TopicPartition("t", 0): 3}
    made = [judge(GroupStatus(group_id="g", phase=Phase.IDLE, lag=lag), LIMITS) for _ in range(2)]
    assert len(set(made)) == len({one.status for one in made}) == 1
