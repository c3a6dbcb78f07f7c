"""The lease: when it ends, and what makes it longer."""

from __future__ import annotations

import math
from typing import final

from hypothesis import given
from hypothesis import strategies as st

from kgroup.client.lease import Lease


@final
class Hand:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        """See ``Clock``."""
        return self.time


def lease(clock: Hand, session: float = 30.0, rebalance: float = 60.0) -> tuple[Lease, list[float]]:
    """A lease of a member that joined at 0, and the times at which it became longer."""
    confirmed: list[float] = []
    made = Lease(
        clock,
        session_timeout=session,
        rebalance_timeout=rebalance,
        joined_at=0.0,
        on_confirm=lambda: confirmed.append(clock.time),
    )
    return made, confirmed


def test_the_last_round_trip() -> None:
    """It is that of the last heartbeat, and never negative, although clocks of programs may be."""
    clock = Hand()
    made, _ = lease(clock)
    assert made.round_trip == 0.0
    for now, sent_at, expected in ((5.0, 4.5, 0.5), (8.0, 8.0, 0.0), (7.0, 9.0, 0.0)):
        clock.time = now
        made.confirm(sent_at)
        assert made.round_trip == expected


def test_the_lease_begins_when_the_join_was_sent() -> None:
    """Without any heartbeat it lasts a session time-out from the sending of JoinGroup."""
    clock = Hand()
    made, confirmed = lease(clock)
    assert made.left == 30.0
    clock.time = 31.0
    assert made.left == -1.0
    assert confirmed == []


def test_a_heartbeat_counts_from_when_it_was_sent() -> None:
    """A slow response extends the lease from the sending of its request only."""
    clock = Hand()
    made, confirmed = lease(clock)
    clock.time = 20.0
    made.confirm(sent_at=5.0)
    assert made.left == 15.0
    assert made.unconfirmed_for == 15.0
    assert confirmed == [20.0]


def test_a_commit_renews_the_session_only() -> None:
    """With commits alone, the lease ends a rebalance time-out after the last heartbeat."""
    clock = Hand()
    made, _ = lease(clock)
    for second in range(0, 80, 10):
        clock.time = float(second)
        made.extend(sent_at=clock.time)
    assert clock.time == 70.0
    assert made.left == -10.0
    made.confirm(sent_at=70.0)
    assert made.left == 30.0


def test_a_lease_that_was_revoked_is_over_for_good() -> None:
    """It ends at once, whatever was left of it, and no answer that comes late extends it."""
    made, _ = lease(Hand())
    made.revoke()
    assert made.left == -math.inf
    made.confirm(sent_at=0.0)
    made.extend(sent_at=0.0)
    assert made.ends == -math.inf


@given(
    session=st.floats(1, 100),
    rebalance=st.floats(1, 100),
    steps=st.lists(st.tuples(st.floats(0, 20), st.booleans(), st.floats(0, 20)), max_size=30),
)
def test_the_lease_is_never_longer_than_responses_confirm(
    session: float, rebalance: float, steps: list[tuple[float, bool, float]]
) -> None:
    """In any order of responses it ends by the latest confirmation, and none shortens it."""
    clock = Hand()
    made, _ = lease(clock, session, rebalance)
    renewed = confirmed = 0.0
    for passed, heartbeat, ago in steps:
        clock.time += passed
        sent_at = max(0.0, clock.time - ago)
        before = made.left
        if heartbeat:
            made.confirm(sent_at)
            confirmed = max(confirmed, sent_at)
        else:
            made.extend(sent_at)
        renewed = max(renewed, sent_at)
        assert made.left >= before
        assert made.left == min(renewed + session, confirmed + rebalance) - clock.time
