"""How a rebalance begins, waits and completes, and what its timers do."""

from __future__ import annotations

import attrs
import pytest

from kgroup.broker.groups.requests import DeleteGroups
from kgroup.broker.groups.responses import GroupsDeleted, JoinCompleted, SyncCompleted
from kgroup.broker.groups.states import COMPLETING, EMPTY, PREPARING, STABLE
from kgroup.error_codes import ErrorCode
from tests.broker.groups.bench import SETTINGS, Bench, Client, subscription

DELAY = attrs.evolve(SETTINGS, initial_rebalance_delay=1.0)
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def static(bench: Bench, label: str, rebalance: float = 60.0) -> Client:
    """A client that joins with its first request."""
    return bench.client(label, instance=label, rebalance=rebalance)


# The initial delay


def answered_after(bench: Bench, ticket: int) -> float:
    """The seconds until a request is answered."""
    start = bench.now
    while bench.is_parked(ticket):
        at = bench.coordinator.next_timer
        assert at is not None
        bench.sleep(at - bench.now)
    return round(bench.now - start, 6)


def test_first_join_waits_the_initial_delay() -> None:
    """A single member waits for the initial delay, however short its rebalance time-out."""
    for rebalance in (60.0, 0.3):
        bench = Bench(DELAY)
        assert answered_after(bench, static(bench, "m1", rebalance).join()) == 1.0


@pytest.mark.parametrize(("rebalance", "expected"), [(60.0, 3.0), (2.5, 2.5), (1.0, 1.0)])
def test_newcomers_extend_the_delay_up_to_the_first_members_timeout(
    rebalance: float, expected: float
) -> None:
    """Each delay in which a member joins adds another, up to the first member's time-out."""
    bench = Bench(DELAY)
    start = bench.now
    first = static(bench, "m0", rebalance).join()
    for at in (0.6, 1.2, 1.8):
        bench.sleep(start + at - bench.now)
        if bench.is_parked(first):
            static(bench, f"m{at}", 600.0).join()
    answered_after(bench, first)
    assert bench.group().since == pytest.approx(start + expected)


def test_member_that_joins_again_is_no_newcomer() -> None:
    """Neither a repeated join nor a pending id extends the delay."""
    bench = Bench(DELAY)
    m1 = bench.client("m1")
    m1.enlist()
    m1.join()
    bench.sleep(0.5)
    again = m1.join()
    bench.client("m2").enlist()
    assert answered_after(bench, again) == 0.5


def test_everyone_leaving_the_initial_delay_empties_the_group_at_its_end() -> None:
    """The delay passes, then the group is Empty in generation 1."""
    bench = Bench(DELAY)
    m1 = bench.client("m1")
    m1.enlist()
    m1.join()
    m1.leave()
    assert bench.state() is PREPARING
    bench.sleep(1.0)
    assert bench.state() is EMPTY
    assert bench.group().generation_id == 1


def test_end_of_a_pending_session_completes_even_an_initial_wait() -> None:
    """As in Kafka, its expiry completes a join that waits for no other member."""
    bench = Bench(DELAY)
    bench.client("m2", session=0.3).enlist()
    join = static(bench, "m1").join()
    assert answered_after(bench, join) == 0.3


def test_later_rebalances_do_not_wait() -> None:
    """Only a rebalance of an Empty group waits, also if the group was emptied."""
    bench = Bench(DELAY)
    m1, m2 = static(bench, "m1"), static(bench, "m2")
    first = m1.join()
    bench.sleep(1.0)
    m1.take(first)
    second = m2.join()
    m1.join_now()
    assert not bench.is_parked(second)
    m2.take(second)
    m1.leave(m2)
    assert answered_after(bench, static(bench, "m3").join()) == 1.0


def test_newcomers_of_a_wait_without_time_left_are_remembered() -> None:
    """Kafka's flag outlives a wait that could not be extended, and extends the next one."""
    bench = Bench(DELAY)
    m1, m2 = static(bench, "m1", 1.0), static(bench, "m2", 1.0)
    first, second = m1.join(), m2.join()
    bench.sleep(1.0)
    m1.take(first)
    m2.take(second)
    m1.leave(m2)
    assert bench.state() is EMPTY
    assert answered_after(bench, static(bench, "m3").join()) == 2.0


# Completion


def test_unjoined_dynamic_members_are_dropped_at_the_rebalance_timeout() -> None:
    """The longest time-out of the members counts; those that joined continue with a new leader."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=2.0), bench.client("m2", rebalance=1.0)
    bench.form(m1, m2)
    m2.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    bench.sleep(1.99)
    assert bench.is_parked(rejoin)
    bench.sleep(0.02)
    response = m2.take(rejoin)
    assert response.leader == m2.id
    assert [member.member_id for member in response.members] == [m2.id]
    assert m1.heartbeat() is UNKNOWN


def test_pending_ids_outlive_the_rebalance_timeout() -> None:
    """The join completes without them; an id is valid until its session ends."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=1.0), bench.client("m2")
    bench.form(m1)
    m2.enlist()
    rejoin = m1.join()
    bench.sleep(1.01)
    assert m1.take(rejoin).generation_id == 2
    assert bench.is_parked(m2.join())


def test_new_rebalance_sends_parked_syncs_away() -> None:
    """Parked syncs get 27 and assignments are emptied when a new member joins."""
    bench = Bench()
    m1, m2, m3 = bench.client("m1"), bench.client("m2"), bench.client("m3")
    bench.form(m1, m2)
    m1.protocols = m2.protocols = {"range": subscription("t2")}
    joins = [m1.join(), m2.join()]
    m1.take(joins[0])
    m2.take(joins[1])
    assert bench.group().members[m2.id].assignment == b"m2"
    sync = m2.sync()
    m3.enlist()
    m3.join()
    assert bench.response_to(sync, SyncCompleted).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.group().members[m2.id].assignment == b""


# Sessions


def test_silent_member_is_removed() -> None:
    """A session that ends removes the member, and a rebalance begins."""
    bench = Bench()
    m1, m2 = bench.client("m1"), bench.client("m2", session=1.0)
    bench.form(m1, m2)
    bench.sleep(0.9)
    m2.heartbeat()
    bench.sleep(0.9)
    assert bench.state() is STABLE
    bench.sleep(0.11)
    assert bench.state() is PREPARING
    assert m2.heartbeat() is UNKNOWN
    assert m1.join_now().generation_id == 3


def test_waiting_members_are_spared() -> None:
    """A session that ends while a join or sync is parked removes no member."""
    bench = Bench()
    m1 = bench.client("m1")
    m2 = bench.client("m2", session=1.0)
    bench.form(m1, m2)
    m2.protocols = m1.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    bench.sleep(30)
    assert bench.is_parked(rejoin)
    m1.join_now()
    m2.take(rejoin)
    sync = m2.sync()
    bench.sleep(30)
    assert bench.is_parked(sync)
    m1.synced({m2: "a"})
    bench.sleep(0.99)
    assert m2.id in bench.group().members
    bench.sleep(0.02)
    assert m2.id not in bench.group().members


def test_new_members_join_is_kept_for_five_minutes() -> None:
    """A new member's parked join gets 25 after 300 s, although the member waits."""
    bench = Bench()
    m1 = bench.client("m1", rebalance=1000.0, session=1000.0)
    bench.form(m1)
    m2 = bench.client("m2", session=1.0)
    m2.enlist()
    join = m2.join()
    bench.sleep(299.9)
    assert bench.is_parked(join)
    bench.sleep(0.2)
    assert bench.response_to(join, JoinCompleted) == JoinCompleted(error=UNKNOWN)
    assert bench.state() is PREPARING
    assert m1.join_now().generation_id == 2


def test_commits_keep_a_member_while_preparing_and_stable() -> None:
    """An OffsetCommit extends the session, a TxnOffsetCommit does not."""
    bench = Bench()
    m1, m2 = bench.client("m1"), bench.client("m2", session=1.0)
    bench.form(m1, m2)
    for _ in range(3):
        bench.sleep(0.9)
        assert m2.commit() is ErrorCode.NONE
    m1.join()
    for _ in range(3):
        bench.sleep(0.9)
        assert m2.commit() is ErrorCode.NONE
    bench.sleep(0.9)
    assert m2.commit_in_transaction() is ErrorCode.NONE
    bench.sleep(0.2)
    assert m2.id not in bench.group().members


def test_member_sent_away_from_its_sync_has_one_session_left() -> None:
    """However long a sync was parked, its error 27 starts the session again."""
    bench = Bench()
    m1, m2 = bench.client("m1"), bench.client("m2", session=1.0)
    bench.form(m1, m2, synced=False)
    m2.sync()
    bench.sleep(30)
    m3 = static(bench, "m3")
    m3.join()
    bench.sleep(0.9)
    assert m2.id in bench.group().members
    bench.sleep(0.2)
    assert m2.id not in bench.group().members


def test_replaced_member_has_a_session() -> None:
    """A static member's new process that stays silent is removed like any other."""
    bench = Bench()
    m1, m2 = bench.client("m1"), bench.client("m2", instance="i2", session=1.0)
    bench.form(m1, m2)
    again = m2.like(id="")
    again.join_now()
    bench.sleep(0.9)
    assert again.id in bench.group().members
    bench.sleep(0.2)
    assert again.id not in bench.group().members


def test_session_of_a_dropped_member_ends_with_it() -> None:
    """A removed member's timer has no effect, even after its group is deleted."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=1.0), bench.client("m2", rebalance=1.0)
    bench.form(m1, m2)
    m2.protocols = {"range": subscription("t2")}
    rejoin = m2.join()
    bench.sleep(1.01)
    m2.take(rejoin)
    m2.leave()
    bench.request(DeleteGroups(group_ids=("g",)), GroupsDeleted)
    bench.sleep(100)
    assert bench.coordinator.group("g") is None


# Syncs that do not come


def test_rebalance_forgets_who_had_to_sync() -> None:
    """The next generation does not wait for a replaced member's old id."""
    bench = Bench()
    m1 = bench.client("m1", rebalance=1.0)
    m2 = bench.client("m2", instance="i2", rebalance=1.0)
    bench.form(m1, m2, synced=False)
    m1.synced({})
    again = m2.like(id="")
    again.join_now()
    rejoin = m1.join()
    again.take(again.join())
    m1.take(rejoin)
    m1.synced({})
    again.synced()
    bench.sleep(5)
    assert bench.state() is STABLE


def test_members_that_do_not_sync_are_dropped() -> None:
    """They have one rebalance time-out after the join, whatever heartbeats they send."""
    bench = Bench()
    m1, m2, m3 = (bench.client(label, rebalance=1.0) for label in ("m1", "m2", "m3"))
    bench.form(m1, m2, m3, synced=False)
    m1.sync({})
    m3.sync()
    bench.sleep(0.9)
    assert m2.heartbeat() is ErrorCode.NONE
    bench.sleep(0.11)
    assert bench.state() is PREPARING
    assert set(bench.group().members) == {m1.id, m3.id}


def test_leader_that_does_not_sync_is_dropped_and_waiters_sent_to_join() -> None:
    """Waiting followers get 27 and stay members."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=1.0), bench.client("m2", rebalance=1.0)
    bench.form(m1, m2, synced=False)
    sync = m2.sync()
    bench.sleep(1.01)
    assert bench.response_to(sync, SyncCompleted).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(bench.group().members) == {m2.id}


def test_generation_in_which_no_member_syncs_ends_empty() -> None:
    """All are removed, and the group is Empty in the next generation."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=1.0), bench.client("m2", rebalance=1.0)
    bench.form(m1, m2, synced=False)
    bench.sleep(1.01)
    assert bench.state() is EMPTY
    assert bench.group().generation_id == 3


def test_all_syncs_stop_the_timer() -> None:
    """Once every member has synced, no member is removed."""
    bench = Bench()
    m1, m2 = bench.client("m1", rebalance=1.0), bench.client("m2", rebalance=1.0)
    bench.form(m1, m2)
    bench.sleep(5)
    assert bench.state() is STABLE


def test_zero_delay_completes_with_the_timer() -> None:
    """Without a delay an empty group's join completes with a timer that is due at once."""
    bench = Bench()
    responses = bench.coordinator.handle(bench.now, static(bench, "m1").joining(), 99)
    assert responses == []
    assert bench.coordinator.next_timer == bench.now
    (response,) = bench.coordinator.expire(bench.now)
    assert response.ticket == 99
    assert bench.state() is COMPLETING
