"""The waits between attempts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kgroup.client.backoff import Backoff, RateLimit

_JITTER = 0.2


@given(
    first=st.floats(0.001, 10),
    times=st.floats(1, 1000),
    seed=st.integers(),
    attempts=st.integers(1, 80),
)
def test_waits_double_with_jitter_up_to_the_most(
    first: float, times: float, seed: int, attempts: int
) -> None:
    """The nth wait is the first doubled n times, a fifth more or less, and never over the most."""
    most = first * times
    backoff = Backoff(first, most, random.Random(seed))
    for attempt in range(attempts):
        wait = backoff.next()
        plain = first * 2.0**attempt
        assert wait <= most
        assert wait >= min(plain * (1 - _JITTER), most) * (1 - 1e-9)
        assert wait <= plain * (1 + _JITTER) * (1 + 1e-9)
    assert backoff.attempts == attempts


def test_a_success_begins_anew() -> None:
    """After a reset the first wait comes again."""
    backoff = Backoff(1.0, 100.0, random.Random(1))
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.attempts == 0
    assert backoff.next() <= 1.2


def test_members_do_not_come_in_step() -> None:
    """Members with different chances wait differently."""
    waits = {Backoff(1.0, 100.0, random.Random(seed)).next() for seed in range(20)}
    assert len(waits) == 20


def test_a_broker_that_is_away_for_ever_overflows_nothing() -> None:
    """Thousands of attempts later the wait is still the most."""
    backoff = Backoff(0.1, 5.0, random.Random(1))
    for _ in range(5000):
        backoff.next()
    assert backoff.next() == 5.0


def test_an_allowance_is_used_up_and_comes_back() -> None:
    """So many at once, then one in each interval; after a rest as many at once again."""
    allowance = RateLimit(3, 2.0)
    assert [allowance.wait(100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert allowance.wait(101.0) == 0.5
    assert [allowance.wait(200.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
