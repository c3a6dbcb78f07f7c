"""Batch limits: invalid ones are refused; the limits per second hold over any time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.errors import ConfigError
from kgroup.spark.batch_limits import Budget, Limits, RateLimiter


@pytest.mark.parametrize("field", ["max_records", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 2**63, 1.5, True, "9", math.nan])
def test_a_batch_is_limited_by_whole_numbers(field: str, value: Any) -> None:
    """Any other limit is refused at once, with the field's name."""
    with pytest.raises(ConfigError, match=f"^{field}=.* is refused: .* None for no limit") as seen:
        Limits(**{field: value})
    assert seen.value.field == field


@pytest.mark.parametrize("field", ["max_records_per_second", "max_bytes_per_second"])
@pytest.mark.parametrize("value", [0, 0.0, -0.5, math.inf, math.nan, True, "9"])
def test_a_second_is_limited_by_numbers_above_0(field: str, value: Any) -> None:
    """Any other limit is refused at once, with the field's name."""
    with pytest.raises(ConfigError, match=f"^{field}=.* is refused: .* None for no limit"):
        Limits(**{field: value})


def test_without_limits_nothing_bounds_a_batch() -> None:
    """Neither records nor bytes are limited, at any time."""
    assert Limits().budget() == Budget(None, None)
    limiter = RateLimiter(Limits(), 0.0)
    limiter.spend(10**9, 10**12, 0.0)
    assert limiter.budget(0.0) == Budget(None, None)
    assert limiter.wait(0.0) == 0.0


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(), False),
        (Budget(1, 1), False),
        (Budget(0, None), True),
        (Budget(None, -5), True),
        (Budget(3, 0), True),
    ],
)
def test_a_budget_is_spent_when_either_half_is(budget: Budget, spent: bool) -> None:
    """A budget of no records or of no bytes allows no batch."""
    assert budget.spent is spent


def test_a_limiter_begins_with_a_second_and_saves_up_a_burst() -> None:
    """Unused tokens are kept up to the burst; the rest is dropped."""
    limiter = RateLimiter(Limits(max_records_per_second=100), 50.0, burst=3)
    assert limiter.budget(50.0).records == 100
    assert limiter.budget(51.0).records == 200
    assert limiter.budget(3600.0).records == 300


def test_the_limit_of_a_batch_stays_beside_what_is_saved_up() -> None:
    """The lower of the two applies, separately for records and for bytes."""
    limits = Limits(
        max_records=150, max_bytes=900, max_records_per_second=100, max_bytes_per_second=500
    )
    limiter = RateLimiter(limits, 0.0)
    assert limiter.budget(0.0) == Budget(100, 500)
    assert limiter.budget(1.0) == Budget(150, 900)


def test_a_debt_of_bytes_is_waited_for() -> None:
    """After a record larger than the tokens left, the next plan waits until they suffice."""
    limiter = RateLimiter(Limits(max_bytes_per_second=100), 0.0)
    limiter.spend(1, 1100, 0.0)
    assert limiter.budget(0.0).spent
    assert limiter.wait(0.0) == pytest.approx(10.01)
    assert limiter.budget(10.0).spent
    assert not limiter.budget(10.02).spent


def test_an_estimate_is_corrected_later() -> None:
    """If bytes were estimated too high, the difference is returned."""
    limiter = RateLimiter(Limits(max_bytes_per_second=100), 0.0)
    limiter.spend(1, 100, 0.0)
    limiter.spend(0, -40, 0.0)
    assert limiter.budget(0.0).bytes == 40


def test_a_rate_below_one_a_second_allows_one_in_time() -> None:
    """The bucket always has room for one whole record."""
    limiter = RateLimiter(Limits(max_records_per_second=0.01), 0.0)
    assert limiter.budget(0.0).records == 1
    limiter.spend(1, 0, 0.0)
    assert limiter.wait(0.0) == pytest.approx(100)
    assert limiter.budget(101.0).records == 1


def test_a_clock_that_went_back_fills_nothing() -> None:
    """Time that is counted once is not counted again."""
    limiter = RateLimiter(Limits(max_records_per_second=100), 10.0)
    limiter.spend(100, 0, 10.0)
    limiter.spend(0, 0, 5.0)
    assert limiter.budget(5.0).records == 0
    assert limiter.budget(10.0).records == 0


@pytest.mark.parametrize("burst", [0, -1, math.inf, math.nan])
def test_a_burst_is_a_number_of_seconds(burst: float) -> None:
    """Any other burst is refused."""
    with pytest.raises(ConfigError, match="burst="):
        RateLimiter(Limits(), 0.0, burst=burst)


@given(
    rate=st.integers(1, 1000),
    pauses=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 1)), min_size=1, max_size=30),
)
def test_over_any_time_the_rate_holds(rate: int, pauses: list[tuple[float, float]]) -> None:
    """In any period, at most the rate times its length plus one burst is taken."""
    now, taken = 0.0, 0
    limiter = RateLimiter(Limits(max_records_per_second=rate), now, burst=10)
    for pause, part in pauses:
        now += pause
        allowed = limiter.budget(now).records
        assert allowed is not None
        wanted = math.floor(allowed * part)
        limiter.spend(wanted, 0, now)
        taken += wanted
        assert taken <= rate * (now + 1) + 1e-6
