"""How a rebalance begins, waits and completes, and what its timers do."""

from __future__ import annotations

import attrs
import pytest

from kgroup.broker.groups.rebalance import SHORTEST_REPEAT
from kgroup.broker.groups.requests import DeleteGroups
from kgroup.broker.groups.responses import GroupsDeleted, JoinCompleted, SyncCompleted
from kgroup.broker.groups.states import COMPLETING, EMPTY, PREPARING, STABLE
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import SETTINGS, Client, Harness, subscription

DELAY = attrs.evolve(SETTINGS, initial_rebalance_delay=1.0)
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def static(harness: Harness, label: str, rebalance: float = 60.0, session: float = 60.0) -> Client:
    """A client that joins with its first request."""
    return harness.client(label, instance=label, rebalance=rebalance, session=session)


# The initial delay


def answered_after(harness: Harness, ticket: int) -> float:
    """The seconds until a request is answered."""
    start = harness.now
    while harness.is_parked(ticket):
        at = harness.coordinator.next_timer
        assert at is not None
        harness.sleep(at - harness.now)
    return round(harness.now - start, 6)


def test_first_join_waits_the_initial_delay() -> None:
    """A single member waits for the initial delay, however short its rebalance time-out."""
    for rebalance in (60.0, 0.3):
        harness = Harness(DELAY)
        assert answered_after(harness, static(harness, "m1", rebalance).join()) == 1.0


@pytest.mark.parametrize(("rebalance", "expected"), [(60.0, 3.0), (2.5, 2.5), (1.0, 1.0)])
def test_newcomers_extend_the_delay_up_to_the_first_members_timeout(
    rebalance: float, expected: float
) -> None:
    """Each delay in which a member joins adds another, up to the first member's time-out."""
    harness = Harness(DELAY)
    start = harness.now
    first = static(harness, "m0", rebalance).join()
    for at in (0.6, 1.2, 1.8):
        harness.sleep(start + at - harness.now)
        if harness.is_parked(first):
            static(harness, f"m{at}", 600.0).join()
    answered_after(harness, first)
    assert harness.group().since == pytest.approx(start + expected)


def test_member_that_joins_again_is_no_newcomer() -> None:
    """Neither a repeated join nor a pending id extends the delay."""
    harness = Harness(DELAY)
    m1 = harness.client("m1")
    m1.enlist()
    m1.join()
    harness.sleep(0.5)
    again = m1.join()
    harness.client("m2").enlist()
    assert answered_after(harness, again) == 0.5


def test_everyone_leaving_the_initial_delay_empties_the_group_at_its_end() -> None:
    """The delay passes, then the group is Empty in generation 1."""
    harness = Harness(DELAY)
    m1 = harness.client("m1")
    m1.enlist()
    m1.join()
    m1.leave()
    assert harness.state() is PREPARING
    harness.sleep(1.0)
    assert harness.state() is EMPTY
    assert harness.group().generation_id == 1


def test_end_of_a_pending_session_completes_even_an_initial_wait() -> None:
    """As in Kafka, its expiry completes a join that waits for no other member."""
    harness = Harness(DELAY)
    harness.client("m2", session=0.3).enlist()
    join = static(harness, "m1").join()
    assert answered_after(harness, join) == 0.3


def test_later_rebalances_do_not_wait() -> None:
    """Only a rebalance of an Empty group waits, also if the group was emptied."""
    harness = Harness(DELAY)
    m1, m2 = static(harness, "m1"), static(harness, "m2")
    first = m1.join()
    harness.sleep(1.0)
    m1.take(first)
    second = m2.join()
    m1.join_now()
    assert not harness.is_parked(second)
    m2.take(second)
    m1.leave(m2)
    assert answered_after(harness, static(harness, "m3").join()) == 1.0


def test_newcomers_of_a_wait_without_time_left_are_remembered() -> None:
    """Kafka's flag outlives a wait that could not be extended, and extends the next one."""
    harness = Harness(DELAY)
    m1, m2 = static(harness, "m1", 1.0), static(harness, "m2", 1.0)
    first, second = m1.join(), m2.join()
    harness.sleep(1.0)
    m1.take(first)
    m2.take(second)
    m1.leave(m2)
    assert harness.state() is EMPTY
    assert answered_after(harness, static(harness, "m3").join()) == 2.0


# Completion


def test_unjoined_dynamic_members_are_dropped_at_the_rebalance_timeout() -> None:
    """The longest time-out of the members counts; those that joined continue with a new leader."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=2.0), harness.client("m2", rebalance=1.0)
    harness.form(m1, m2)
    m2.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    harness.sleep(1.99)
    assert harness.is_parked(rejoin)
    harness.sleep(0.02)
    response = m2.take(rejoin)
    assert response.leader == m2.id
    assert [member.member_id for member in response.members] == [m2.id]
    assert m1.heartbeat() is UNKNOWN


def test_pending_ids_outlive_the_rebalance_timeout() -> None:
    """The join completes without them; an id is valid until its session ends."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2")
    harness.form(m1)
    m2.enlist()
    rejoin = m1.join()
    harness.sleep(1.01)
    assert m1.take(rejoin).generation_id == 2
    assert harness.is_parked(m2.join())


def test_new_rebalance_sends_parked_syncs_away() -> None:
    """Parked syncs get 27 and assignments are emptied when a new member joins."""
    harness = Harness()
    m1, m2, m3 = harness.client("m1"), harness.client("m2"), harness.client("m3")
    harness.form(m1, m2)
    m1.protocols = m2.protocols = {"range": subscription("t2")}
    joins = [m1.join(), m2.join()]
    m1.take(joins[0])
    m2.take(joins[1])
    assert harness.group().members[m2.id].assignment == b"m2"
    sync = m2.sync()
    m3.enlist()
    m3.join()
    assert harness.response_to(sync, SyncCompleted).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.group().members[m2.id].assignment == b""


# Sessions


def test_silent_member_is_removed() -> None:
    """A session that ends removes the member, and a rebalance begins."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", session=1.0)
    harness.form(m1, m2)
    harness.sleep(0.9)
    m2.heartbeat()
    harness.sleep(0.9)
    assert harness.state() is STABLE
    harness.sleep(0.11)
    assert harness.state() is PREPARING
    assert m2.heartbeat() is UNKNOWN
    assert m1.join_now().generation_id == 3


def test_waiting_members_are_spared() -> None:
    """A session that ends while a join or sync is parked removes no member."""
    harness = Harness()
    m1 = harness.client("m1")
    m2 = harness.client("m2", session=1.0)
    harness.form(m1, m2)
    m2.protocols = m1.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    harness.sleep(30)
    assert harness.is_parked(rejoin)
    m1.join_now()
    m2.take(rejoin)
    sync = m2.sync()
    harness.sleep(30)
    assert harness.is_parked(sync)
    m1.synced({m2: "a"})
    harness.sleep(0.99)
    assert m2.id in harness.group().members
    harness.sleep(0.02)
    assert m2.id not in harness.group().members


def test_new_members_join_is_kept_for_five_minutes() -> None:
    """A new member's parked join gets 25 after 300 s, although the member waits."""
    harness = Harness()
    m1 = harness.client("m1", rebalance=1000.0, session=1000.0)
    harness.form(m1)
    m2 = harness.client("m2", session=1.0)
    m2.enlist()
    join = m2.join()
    harness.sleep(299.9)
    assert harness.is_parked(join)
    harness.sleep(0.2)
    assert harness.response_to(join, JoinCompleted) == JoinCompleted(error=UNKNOWN)
    assert harness.state() is PREPARING
    assert m1.join_now().generation_id == 2


def test_commits_keep_a_member_while_preparing_and_stable() -> None:
    """An OffsetCommit extends the session, a TxnOffsetCommit does not."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", session=1.0)
    harness.form(m1, m2)
    for _ in range(3):
        harness.sleep(0.9)
        assert m2.commit() is ErrorCode.NONE
    m1.join()
    for _ in range(3):
        harness.sleep(0.9)
        assert m2.commit() is ErrorCode.NONE
    harness.sleep(0.9)
    assert m2.commit_in_transaction() is ErrorCode.NONE
    harness.sleep(0.2)
    assert m2.id not in harness.group().members


def test_member_sent_away_from_its_sync_has_one_session_left() -> None:
    """However long a sync was parked, its error 27 starts the session again."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", session=1.0)
    harness.form(m1, m2, synced=False)
    m2.sync()
    harness.sleep(30)
    m3 = static(harness, "m3")
    m3.join()
    harness.sleep(0.9)
    assert m2.id in harness.group().members
    harness.sleep(0.2)
    assert m2.id not in harness.group().members


def test_replaced_member_has_a_session() -> None:
    """A static member's new process that stays silent is removed like any other."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", instance="i2", session=1.0)
    harness.form(m1, m2)
    again = m2.like(id="")
    again.join_now()
    harness.sleep(0.9)
    assert again.id in harness.group().members
    harness.sleep(0.2)
    assert again.id not in harness.group().members


def test_session_of_a_dropped_member_ends_with_it() -> None:
    """A removed member's timer has no effect, even after its group is deleted."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2", rebalance=1.0)
    harness.form(m1, m2)
    m2.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    harness.sleep(1.01)
    m2.take(rejoin)
    m2.leave()
    harness.request(DeleteGroups(group_ids=("g",)), GroupsDeleted)
    harness.sleep(100)
    assert harness.coordinator.group("g") is None


# Syncs that do not come


def test_rebalance_forgets_who_had_to_sync() -> None:
    """The next generation does not wait for a replaced member's old id."""
    harness = Harness()
    m1 = harness.client("m1", rebalance=1.0)
    m2 = harness.client("m2", instance="i2", rebalance=1.0)
    harness.form(m1, m2, synced=False)
    m1.synced({})
    again = m2.like(id="")
    again.join_now()
    rejoin = m1.join()
    again.take(again.join())
    m1.take(rejoin)
    m1.synced({})
    again.synced()
    harness.sleep(5)
    assert harness.state() is STABLE


def test_members_that_do_not_sync_are_dropped() -> None:
    """They have one rebalance time-out after the join, whatever heartbeats they send."""
    harness = Harness()
    m1, m2, m3 = (harness.client(label, rebalance=1.0) for label in ("m1", "m2", "m3"))
    harness.form(m1, m2, m3, synced=False)
    m1.sync({})
    m3.sync()
    harness.sleep(0.9)
    assert m2.heartbeat() is ErrorCode.NONE
    harness.sleep(0.11)
    assert harness.state() is PREPARING
    assert set(harness.group().members) == {m1.id, m3.id}


def test_leader_that_does_not_sync_is_dropped_and_waiters_sent_to_join() -> None:
    """Waiting followers get 27 and stay members."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2", rebalance=1.0)
    harness.form(m1, m2, synced=False)
    sync = m2.sync()
    harness.sleep(1.01)
    assert harness.response_to(sync, SyncCompleted).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(harness.group().members) == {m2.id}


def test_generation_in_which_no_member_syncs_ends_empty() -> None:
    """All are removed, and the group is Empty in the next generation."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2", rebalance=1.0)
    harness.form(m1, m2, synced=False)
    harness.sleep(1.01)
    assert harness.state() is EMPTY
    assert harness.group().generation_id == 3


def test_all_syncs_stop_the_timer() -> None:
    """Once every member has synced, no member is removed."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2", rebalance=1.0)
    harness.form(m1, m2)
    harness.sleep(5)
    assert harness.state() is STABLE


@pytest.mark.parametrize("rebalance", [0.0, -0.001, -(2**31) / 1000])
def test_static_members_without_a_rebalance_timeout_do_not_occupy_the_coordinator(
    rebalance: float,
) -> None:
    """While such members are away, the join timer pauses each time; they return when they like."""
    harness = Harness(attrs.evolve(SETTINGS, max_session_timeout=1800.0))
    lasting = [static(harness, name, rebalance=rebalance, session=1800.0) for name in ("m1", "m2")]
    leaver = static(harness, "m3", rebalance=60.0)
    harness.form(leaver, *lasting)
    leaver.leave()
    assert harness.state() is PREPARING
    for _ in range(100):
        at = harness.coordinator.next_timer
        assert at is not None
        assert at >= harness.now + SHORTEST_REPEAT
        harness.sleep(at - harness.now)
    for one, ticket in [(one, one.join()) for one in lasting]:
        assert one.take(ticket).error is ErrorCode.NONE


def test_zero_delay_completes_with_the_timer() -> None:
    """Without a delay an empty group's join completes with a timer that is due at once."""
    harness = Harness()
    responses = harness.coordinator.handle(harness.now, static(harness, "m1").joining(), 99)
    assert responses == []
    assert harness.coordinator.next_timer == harness.now
    (response,) = harness.coordinator.expire(harness.now)
    assert response.ticket == 99
    assert harness.state() is COMPLETING
