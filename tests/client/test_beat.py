"""The beat: the moments of heartbeats that the members of a group have in common."""

from __future__ import annotations

import math
from collections import Counter
from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.client.beat import Beat

intervals = st.floats(0.01, 600)
times = st.floats(-1e10, 1e10)


@final
class Stopped:
    """A wall clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        """See ``Clock``."""
        return self.time


@given(now=times, interval=intervals, group_id=st.text())
def test_a_wait_is_half_to_one_and_a_half_intervals(
    now: float, interval: float, group_id: str
) -> None:
    """Heartbeats are never close to each other or far apart, whatever the wall clock shows."""
    assert 0.499 * interval <= Beat(Stopped(now), group_id).delay(interval) <= 1.501 * interval


@given(now=st.floats(0, 4e9), later=st.floats(0, 10), group_id=st.text())
def test_members_that_begin_at_different_times_meet(
    now: float, later: float, group_id: str
) -> None:
    """After one heartbeat each, the next ones of two members come at the same moment."""
    one, other = (at + Beat(Stopped(at), group_id).delay(1.0) for at in (now, now + later))
    assert math.isclose((other - one) % 1, 0, abs_tol=1e-5) or math.isclose(
        (other - one) % 1, 1, abs_tol=1e-5
    )


@given(now=st.floats(0, 4e9), group_id=st.text())
def test_intervals_that_are_multiples_have_moments_in_common(now: float, group_id: str) -> None:
    """Every heartbeat of a member with an interval of 2 s is at a moment of those with 1 s."""
    beat = Beat(Stopped(now), group_id)
    apart = (beat.delay_to_next(2.0) - beat.delay_to_next(1.0)) % 1
    assert min(apart, 1 - apart) < 1e-5


@pytest.mark.parametrize(("interval", "moments"), [(1.0, 10), (3.0, 30), (10.0, 100), (0.5, 5)])
def test_groups_share_few_moments(interval: float, moments: int) -> None:
    """Those of a thousand groups are spread over the interval, a tenth of a second apart."""
    delays = [
        round(Beat(Stopped(0), f"group-{number}").delay_to_next(interval), 6)
        for number in range(1000)
    ]
    found = Counter(round(delay % interval, 6) for delay in delays)
    assert len(found) == moments
    assert max(found.values()) < 2.5 * len(delays) / moments


def test_no_wait_is_longer_than_allowed() -> None:
    """If the nearest multiple is later than allowed, the one before it is taken."""
    clock = Stopped(0.3)
    assert Beat(clock, "").delay(1.0) == pytest.approx(0.7)
    clock.time = 0.7
    assert Beat(clock, "").delay(1.0) == pytest.approx(1.3)
    assert Beat(clock, "", longest=1.2).delay(1.0) == pytest.approx(0.3)


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_an_unusable_clock_is_ignored(now: float) -> None:
    """If the wall clock gives no usable time, heartbeats simply follow their interval."""
    assert Beat(Stopped(now), "group").delay(2.0) == 2.0


@given(now=st.floats(0, 4e9), interval=intervals, lead=st.floats(0, 1000))
def test_the_moment_before_a_heartbeat(now: float, interval: float, lead: float) -> None:
    """It comes within one interval, and lies the given time before a multiple of it."""
    beat = Beat(Stopped(now), "group")
    before = beat.delay_before(interval, lead)
    assert 0 <= before < interval
    off = (before + lead - beat.delay_to_next(interval)) % interval
    assert min(off, interval - off) < 1e-5
