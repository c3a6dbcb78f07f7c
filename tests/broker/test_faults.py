"""Planned faults: which requests they affect, and how often."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker.apis import APIS
from kgroup.broker.faults import InjectedFaults
from kgroup.errors import ArgumentError
from kgroup.wire.versions import kafka_name


def test_an_error_happens_as_often_as_planned() -> None:
    """The error affects its API only, the given number of times, and is counted."""
    faults = InjectedFaults()
    fault = faults.plan("heartbeat", error_code=27, times=2)
    assert faults.apply("join_group", object()) == (0.0, None)
    assert [faults.apply("heartbeat", object()) for _ in range(3)] == [
        (0.0, 27),
        (0.0, 27),
        (0.0, None),
    ]
    assert fault.seen == 2


def test_a_fault_can_be_aimed() -> None:
    """Only a request that matches is affected."""
    faults = InjectedFaults()
    faults.plan("heartbeat", error_code=27, match=lambda request: request == "this")
    assert faults.apply("heartbeat", "that") == (0.0, None)
    assert faults.apply("heartbeat", "this") == (0.0, 27)


def test_a_fault_without_end_can_be_cancelled() -> None:
    """The fault lasts until it is cancelled."""
    faults = InjectedFaults()
    fault = faults.plan(None, delay=2.0)
    for api in ("heartbeat", "fetch", "fetch"):
        assert faults.apply(api, object()) == (2.0, None)
    fault.cancel()
    assert faults.apply("fetch", object()) == (0.0, None)


def test_delays_add_up_and_one_error_counts() -> None:
    """A delay and an error can affect one request; a second error waits for the next."""
    faults = InjectedFaults()
    faults.plan(None, delay=1.0)
    faults.plan("fetch", delay=0.5)
    faults.plan("fetch", error_code=3, times=1)
    faults.plan("fetch", error_code=6, times=1)
    assert faults.apply("fetch", object()) == (1.5, 3)
    assert faults.apply("fetch", object()) == (1.5, 6)
    assert faults.apply("fetch", object()) == (1.5, None)


def test_an_unknown_api_is_refused() -> None:
    """The error for an unknown API lists those that the broker has."""
    with pytest.raises(ValueError, match="no API 'Heartbeet'; did you mean 'Heartbeat'.*JoinGroup"):
        InjectedFaults().plan("Heartbeet", error_code=1)


def test_names_as_kafka_spells_them() -> None:
    """An API and an error can be named as Kafka's documentation names them, or as kio does."""
    faults = InjectedFaults()
    faults.plan("JoinGroup", error_code="COORDINATOR_NOT_AVAILABLE", times=1)
    assert faults.apply("join_group", object()) == (0.0, 15)
    faults.plan("FindCoordinator", delay=1.0)
    assert faults.apply("find_coordinator", object()) == (1.0, None)
    with pytest.raises(ValueError, match="no error 'NOT_COORDINATR'; did you mean 'NOT_COORD"):
        faults.plan("Heartbeat", error_code="NOT_COORDINATR")


@pytest.mark.parametrize("api", sorted(APIS))
def test_every_api_has_kafka_s_name(api: str) -> None:
    """No two of kio's names lead to the same one of Kafka's."""
    faults = InjectedFaults()
    assert faults.plan(kafka_name(api), error_code=1).api == api


async def test_reachable_waits(autojump_clock: trio.testing.MockClock) -> None:
    """`reachable` waits for as long as the broker cannot be reached."""
    faults = InjectedFaults()
    await faults.wait_reachable()
    faults.set_reachable(reachable=False)
    faults.set_reachable(reachable=False)
    with trio.move_on_after(5) as scope:
        await faults.wait_reachable()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(faults.wait_reachable)
        await trio.testing.wait_all_tasks_blocked()
        faults.set_reachable(reachable=True)


@pytest.mark.parametrize(
    "wrong", [{"delay": "1"}, {"delay": -1}, {"times": "2"}, {"times": 0}, {"times": 1.5}]
)
def test_a_fault_with_a_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    """It is refused where it is planned, not where a client meets it."""
    with pytest.raises(ArgumentError, match="is refused"):
        InjectedFaults().plan("heartbeat", **wrong)
