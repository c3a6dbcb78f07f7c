"""The waits between attempts, and limits of how often something may happen."""

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
    """The nth wait is the first, doubled n times, with a fifth of jitter, up to the longest."""
    most = first * times
    backoff = Backoff(first, most, random.Random(seed))
    for attempt in range(attempts):
        wait = backoff.next()
        plain = first * 2.0**attempt
        assert wait <= most
        assert wait >= min(plain * (1 - _JITTER), most) * (1 - 1e-9)
        assert wait <= plain * (1 + _JITTER) * (1 + 1e-9)


def test_a_success_resets_the_waits() -> None:
    """After a reset, the first wait comes again."""
    backoff = Backoff(1.0, 100.0, random.Random(1))
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1.2


def test_members_do_not_come_in_step() -> None:
    """Members with different random numbers wait for different times."""
    waits = {Backoff(1.0, 100.0, random.Random(seed)).next() for seed in range(20)}
    assert len(waits) == 20


def test_thousands_of_failures_overflow_nothing() -> None:
    """After thousands of attempts, the wait is still the longest."""
    backoff = Backoff(0.1, 5.0, random.Random(1))
    for _ in range(5000):
        backoff.next()
    assert backoff.next() == 5.0


def test_a_limit_is_used_up_and_comes_back() -> None:
    """A burst, then one event in each interval; after a pause, a burst is possible again."""
    limit = RateLimit(3, 2.0)
    assert [limit.delay(100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert limit.delay(101.0) == 0.5
    assert [limit.delay(200.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
