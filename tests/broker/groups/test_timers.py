"""Deadlines by name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgroup.broker.groups.timers import TimerKind, TimerName, Timers

NAMES = [TimerName(TimerKind.SESSION, "g", f"m{number}") for number in range(4)]


def test_moved_deadline_comes_up_where_it_was_moved_to() -> None:
    """A deadline that is set again, later or earlier, is due at its last time only."""
    timers = Timers()
    timers.set(NAMES[0], 5.0)
    timers.set(NAMES[0], 9.0)
    assert timers.next() == 9.0
    timers.set(NAMES[0], 2.0)
    assert timers.next() == 2.0
    assert timers.pop_due(1.9) is None
    assert timers.pop_due(2.0) == NAMES[0]
    assert timers.next() is None


def test_cancelled_deadline_never_comes() -> None:
    """A cancelled name is not due; cancelling it again, or another, changes nothing."""
    timers = Timers()
    timers.set(NAMES[0], 5.0)
    timers.cancel(NAMES[0])
    timers.cancel(NAMES[1])
    assert timers.next() is None
    assert timers.get(NAMES[0]) is None
    assert timers.pop_due(10.0) is None


def test_equal_deadlines_come_in_the_order_of_setting() -> None:
    """Of two deadlines for one time the one set last is due last."""
    timers = Timers()
    timers.set(NAMES[0], 5.0)
    timers.set(NAMES[1], 5.0)
    timers.set(NAMES[0], 5.0)
    assert [timers.pop_due(5.0), timers.pop_due(5.0)] == [NAMES[1], NAMES[0]]


STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), st.integers(0, 9))), max_size=30
)


@given(steps=STEPS, until=st.integers(0, 9))
def test_agrees_with_a_plain_dictionary(
    steps: list[tuple[TimerName, int | None]], until: int
) -> None:
    """Whatever was set and cancelled, deadlines come due as a sorted dictionary has them."""
    timers = Timers()
    plain: dict[TimerName, tuple[int, int]] = {}
    for count, (name, at) in enumerate(steps):
        if at is None:
            timers.cancel(name)
            plain.pop(name, None)
        else:
            timers.set(name, at)
            plain[name] = (at, count)
        assert timers.next() == min((at for at, _ in plain.values()), default=None)
    due = sorted((name for name in plain if plain[name][0] <= until), key=plain.__getitem__)
    popped = []
    while (expired := timers.pop_due(until)) is not None:
        popped.append(expired)
    assert popped == due
