"""Requests of members in each state: join, sync, heartbeat, leave."""

from __future__ import annotations

import attrs
import pytest

from kgroup.broker.groups.responses import JoinCompleted, LeftMember, SyncCompleted
from kgroup.broker.groups.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import SETTINGS, Harness, subscription

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
TWO = {"range": subscription("t1"), "roundrobin": subscription("t1")}
TURNED = {"roundrobin": subscription("t1"), "range": subscription("t1")}

# Member ids


@pytest.mark.parametrize("version", range(4))
def test_old_clients_join_without_an_id(version: int) -> None:
    """Before v4 a dynamic member joins at once; its id begins with its client id."""
    harness = Harness()
    response = harness.client("m1").join_now(version)
    assert response.error is NONE
    assert response.member_id == response.leader == "m1-id1"
    assert harness.state() is COMPLETING


@pytest.mark.parametrize("version", range(4, 10))
def test_new_clients_are_given_an_id_first(version: int) -> None:
    """From v4 on, a dynamic member's first JoinGroup only gets an id; nothing else changes."""
    harness = Harness()
    m1 = harness.client("m1")
    assert m1.join_now(version) == JoinCompleted(
        error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m1-id1"
    )
    assert harness.state() is EMPTY
    assert m1.join_now(version).generation_id == 1


def test_pending_id_with_an_instance_id_is_an_error() -> None:
    """A pending id belongs to a dynamic member; with an instance id Kafka fails as well."""
    harness = Harness()
    m1 = harness.client("m1")
    m1.enlist()
    response = m1.like(instance="i1").join_now()
    assert response == JoinCompleted(error=ErrorCode.UNKNOWN_SERVER_ERROR)


def test_pending_id_is_void_after_its_session() -> None:
    """A member id that no client uses is removed when its session expires."""
    harness = Harness()
    m1 = harness.client("m1", session=1.0)
    m1.enlist()
    harness.sleep(0.99)
    assert list(harness.group().pending) == [m1.id]
    harness.sleep(0.02)
    assert not harness.group().pending
    assert m1.join_now() == JoinCompleted(error=UNKNOWN, member_id=m1.id)


def test_join_waits_for_pending_ids() -> None:
    """A rebalance completes when the owner of a pending id joins, leaves, or its session ends."""
    for end in ("join", "leave", "session"):
        harness = Harness()
        m1, m2 = harness.client("m1"), harness.client("m2", session=1.0)
        harness.form(m1)
        m2.enlist()
        rejoin = m1.join()
        assert harness.is_parked(rejoin)
        if end == "join":
            m2.join()
        elif end == "leave":
            m2.leave()
        else:
            harness.sleep(1)
        assert m1.take(rejoin).generation_id == 2


def test_pending_id_that_leaves_a_stable_group_starts_a_rebalance() -> None:
    """As in Kafka, any successful leave from a Stable group does, also a pending id's."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1)
    m2.enlist()
    m2.leave()
    assert harness.state() is PREPARING


# JoinGroup of members


def test_repeated_parked_join_replaces_the_older_copy() -> None:
    """Only the latest copy is answered; the older one is reported as given up."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1)
    m2.enlist()
    first, again = m2.join(), m2.join()
    assert harness.is_given_up(first)
    m1.join()
    assert m2.take(again).generation_id == 2


def test_repeated_join_in_completing() -> None:
    """In CompletingRebalance the same join is answered again; a changed one starts over."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2, synced=False)
    assert [member.member_id for member in m1.join_now().members] == [m1.id, m2.id]
    assert m2.join_now().members == ()
    assert harness.state() is COMPLETING
    m2.protocols = {"range": subscription("t2")}
    assert harness.is_parked(m2.join())
    assert harness.state() is PREPARING


def test_join_in_stable() -> None:
    """In Stable an unchanged follower gets the generation; other joins start a rebalance."""
    for who in ("leader", "changed follower", "reordered follower", "follower"):
        harness = Harness()
        m1, m2 = harness.client("m1", protocols=TWO), harness.client("m2", protocols=TWO)
        harness.form(m1, m2)
        if who == "follower":
            assert m2.join_now().generation_id == 2
            assert harness.state() is STABLE
            continue
        if who != "leader":
            m2.protocols = TURNED if who == "reordered follower" else TWO | {"range": b""}
        assert harness.is_parked((m1 if who == "leader" else m2).join())
        assert harness.state() is PREPARING


def test_join_answered_in_stable_does_not_extend_the_session() -> None:
    """Neither a join nor a sync that is answered in Stable extends the session."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", session=1.0)
    harness.form(m1, m2)
    harness.sleep(0.6)
    assert m2.join_now().error is NONE
    assert m2.synced().error is NONE
    harness.sleep(0.5)
    assert m2.id not in harness.group().members


def test_vote_is_by_first_common_choice_and_ties_go_to_range() -> None:
    """Each member votes for its first protocol that all support; range wins a tie."""
    harness = Harness()
    m1 = harness.client("m1", protocols={"sticky": b"", **TURNED})
    m2 = harness.client("m2", protocols=TWO)
    harness.form(m1, m2, synced=False)
    assert harness.group().protocol_name == "range"
    m3 = harness.client("m3", protocols=TURNED)
    m3.enlist()
    m3.join()
    m1.join()
    m2.join()
    assert harness.group().protocol_name == "roundrobin"


def test_protocol_is_checked_before_the_member() -> None:
    """A sole member that offers only a new protocol, and an unknown one, get 23 and their id."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1)
    wrong = m1.like(protocols={"other": b""})
    assert wrong.join_now() == JoinCompleted(
        error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=m1.id
    )
    ghost = wrong.like(id="ghost")
    assert ghost.join_now().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_type = m1.like(protocol_type="connect")
    assert other_type.join_now().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("changes", [{"protocols": {}}, {"protocol_type": ""}])
def test_empty_group_wants_a_protocol(changes: dict[str, object]) -> None:
    """A first member without protocols or type is refused; the group stays Empty."""
    harness = Harness()
    response = harness.client("m1", **changes).join_now()
    assert response.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.state() is EMPTY


def test_unknown_ids_do_not_join() -> None:
    """An unknown member id is refused, and no group is created for it."""
    harness = Harness()
    ghost = harness.client("ghost", id="ghost")
    assert ghost.join_now() == JoinCompleted(error=UNKNOWN, member_id="ghost")
    assert harness.state() is DEAD
    m1 = harness.client("m1")
    harness.form(m1)
    assert ghost.join_now().error is UNKNOWN
    m1.leave()
    assert harness.state() is EMPTY
    assert m1.join_now().error is UNKNOWN


def test_v0_uses_the_session_as_rebalance_timeout() -> None:
    """A request without a rebalance time-out uses the session time-out."""
    harness = Harness()
    harness.client("m1", session=7.0, rebalance=None).join_now(0)
    assert harness.group().rebalance_timeout == 7.0


# Static members


def test_instance_ids_are_checked_first() -> None:
    """An unknown one gets 25, another member's 82, even with an unknown member id."""
    harness = Harness()
    m1, m2 = harness.client("m1", instance="i1"), harness.client("m2")
    harness.form(m1, m2)
    assert m2.like(instance="i9").heartbeat() is UNKNOWN
    assert m2.like(instance="i1").heartbeat() is FENCED
    assert m2.like(id="ghost", instance="i1").heartbeat() is FENCED
    assert m2.like(instance="i1").join_now() == JoinCompleted(error=FENCED, member_id=m2.id)
    assert m1.like(instance=None).heartbeat() is NONE


def test_replacement_in_stable_takes_over_quietly() -> None:
    """A restarted static leader gets a new id and the assignment; v9 says to skip assigning."""
    for version in (8, 9):
        harness = Harness()
        m1, m2 = harness.client("m1", instance="i1"), harness.client("m2", instance="i2")
        harness.form(m1, m2)
        again = harness.client("again", instance="i1")
        response = again.join_now(version)
        assert response.error is NONE
        assert response.generation_id == 2
        assert response.skip_assignment is (version == 9)
        assert response.leader == (again.id if version == 9 else m1.id)
        assert len(response.members) == (2 if version == 9 else 0)
        assert again.synced().assignment == b"m1"
        assert m1.heartbeat() is FENCED
        assert harness.group().members[again.id].client_id == "m1"
        assert harness.state() is STABLE


def test_replacement_of_a_follower_skips_nothing() -> None:
    """Only a returning leader gets skip_assignment and the members."""
    harness = Harness()
    m1, m2 = harness.client("m1", instance="i1"), harness.client("m2", instance="i2")
    harness.form(m1, m2)
    response = harness.client("again", instance="i2").join_now(9)
    assert not response.skip_assignment
    assert response.members == ()
    assert response.leader == m1.id


def test_replacement_with_changed_metadata_but_the_same_protocol_is_quiet() -> None:
    """New metadata is stored without a rebalance if the vote has the same result."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", instance="i2")
    harness.form(m1, m2)
    again = m2.like(id="", protocols={"range": subscription("t2")})
    assert again.join_now().generation_id == 2
    assert harness.state() is STABLE
    assert harness.group().members[again.id].metadata("range") == subscription("t2")


def test_replacement_that_changes_the_vote_rebalances() -> None:
    """If another protocol would win now, the group rebalances."""
    harness = Harness()
    m1 = harness.client("m1", instance="i1", protocols=TWO)
    harness.form(m1)
    response = m1.like(id="", protocols=TURNED).join_now()
    assert (response.generation_id, response.protocol_name) == (2, "roundrobin")


def test_replacement_in_completing_rebalances_and_fences_the_old_sync() -> None:
    """The old process gets 82, other waiting syncs 27; the new process's join is parked."""
    harness = Harness()
    m1, m2, m3 = harness.client("m1"), harness.client("m2", instance="i2"), harness.client("m3")
    harness.form(m1, m2, m3, synced=False)
    old, other = m2.sync(), m3.sync()
    newcomer = m2.like(id="").join()
    assert harness.response_to(old, SyncCompleted) == SyncCompleted(error=FENCED)
    assert harness.response_to(other, SyncCompleted) == SyncCompleted(
        error=ErrorCode.REBALANCE_IN_PROGRESS
    )
    assert harness.is_parked(newcomer)
    assert harness.state() is PREPARING


def test_replacement_in_preparing_fences_the_old_join() -> None:
    """The old process's parked join gets 82 and its id; the new process's join replaces it."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2", instance="i2")
    harness.form(m1, m2)
    m1.protocols = {"range": subscription("t2")}
    m3 = harness.client("m3")
    m3.enlist()
    m3.join()
    old = m2.join()
    again = m2.like(id="")
    newcomer = again.join()
    assert harness.response_to(old, JoinCompleted) == JoinCompleted(error=FENCED, member_id=m2.id)
    m1.join()
    assert again.take(newcomer).error is NONE


def test_silent_static_member_stays_through_a_rebalance() -> None:
    """A static member that has not joined by the rebalance time-out stays a member."""
    harness = Harness()
    m1, m2 = harness.client("m1", rebalance=1.0), harness.client("m2", instance="i2", rebalance=1.0)
    harness.form(m1, m2)
    rejoin = m1.join()
    harness.sleep(0.99)
    assert harness.is_parked(rejoin)
    harness.sleep(0.02)
    assert len(m1.take(rejoin).members) == 2
    assert m2.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert m2.join_now().generation_id == 3


def test_rebalance_of_absent_static_members_waits_on() -> None:
    """If only static members are missing, the wait is repeated until one joins."""
    harness = Harness()
    m1 = harness.client("m1", instance="i1", rebalance=1.0, session=10.0)
    m2 = harness.client("m2", instance="i2", rebalance=1.0, session=10.0)
    m3 = harness.client("m3", rebalance=1.0)
    harness.form(m1, m2, m3)
    m3.leave()
    harness.sleep(3.5)
    assert harness.state() is PREPARING
    assert set(harness.group().members) == {m1.id, m2.id}
    rejoin = m2.join()
    harness.sleep(0.6)
    response = m2.take(rejoin)
    assert response.leader == m2.id
    assert len(response.members) == 2


def test_replaced_member_that_never_synced_still_ends_the_generation() -> None:
    """As in Kafka, the old id still has to sync, and the time for it runs out."""
    harness = Harness()
    m1 = harness.client("m1", rebalance=1.0)
    m2 = harness.client("m2", instance="i2", rebalance=1.0)
    harness.form(m1, m2, synced=False)
    m1.synced({m1: "a1", m2: "a2"})
    again = m2.like(id="")
    again.join_now()
    assert again.synced().assignment == b"a2"
    assert harness.state() is STABLE
    harness.sleep(1.01)
    assert harness.state() is PREPARING
    assert set(harness.group().members) == {m1.id, again.id}


# SyncGroup


def test_followers_wait_for_the_leader() -> None:
    """The leader's sync answers all waiting ones; unassigned members get no bytes."""
    harness = Harness()
    m1, m2, m3 = (harness.client(label) for label in ("m1", "m2", "m3"))
    harness.form(m1, m2, m3, synced=False)
    second, third = m2.sync(), m3.sync()
    assert harness.is_parked(second)
    response = m1.synced({m1: "a1", m2: "a2"})
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert harness.response_to(second, SyncCompleted).assignment == b"a2"
    assert harness.response_to(third, SyncCompleted) == SyncCompleted(
        protocol_type="consumer", protocol_name="range", assignment=b""
    )
    assert harness.state() is STABLE


def test_repeated_parked_sync_replaces_the_older_copy() -> None:
    """Only the latest copy of a sync is answered."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2, synced=False)
    first, again = m2.sync(), m2.sync()
    assert harness.is_given_up(first)
    m1.sync({m2: "a2"})
    assert harness.response_to(again, SyncCompleted).assignment == b"a2"


def test_order_of_checks_in_a_sync() -> None:
    """The checks are of member, generation, protocol and state, in this order."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2)
    wrong = {"protocol_name": "other"}
    for state in (STABLE, PREPARING):
        assert harness.state() is state
        ghost = m1.like(id="ghost", generation=9)
        assert ghost.synced(None, **wrong).error is UNKNOWN
        old = m1.like(generation=9)
        assert old.synced(None, **wrong).error is ErrorCode.ILLEGAL_GENERATION
        assert m1.synced(None, **wrong).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        expected = NONE if state is STABLE else ErrorCode.REBALANCE_IN_PROGRESS
        assert m1.synced().error is expected
        m2.like(protocols={"range": b""}).join()


def test_sync_of_an_empty_or_absent_group() -> None:
    """In a group without members every client is unknown, whatever its instance id."""
    harness = Harness()
    m1 = harness.client("m1", generation=1, id="x", instance="i1")
    assert m1.synced().error is UNKNOWN
    harness.client("m2").enlist()
    assert harness.state() is EMPTY
    assert m1.synced().error is UNKNOWN


# Heartbeat


def test_heartbeat_in_every_state() -> None:
    """Success in Completing and Stable; 27 while preparing, which extends the session too."""
    harness = Harness()
    m1, m2 = harness.client("m1", session=1.0), harness.client("m2")
    harness.form(m1, m2, synced=False)
    assert m1.heartbeat() is NONE
    m1.sync({})
    assert m1.heartbeat() is NONE
    assert m1.like(generation=1).heartbeat() is ErrorCode.ILLEGAL_GENERATION
    m2.like(protocols={"range": b""}).join()
    for _ in range(5):
        harness.sleep(0.8)
        assert m1.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert m1.id in harness.group().members


# LeaveGroup


def test_members_of_one_leave_are_handled_in_order() -> None:
    """Each leaver gets its own error; one that is named again is unknown by then."""
    harness = Harness()
    m1, m2, m3 = harness.client("m1"), harness.client("m2", instance="i2"), harness.client("m3")
    harness.form(m1, m2, m3)
    by_instance = m2.like(id="")
    stranger = m1.like(id="ghost")
    nobody = m1.like(id="", instance="i9")
    fenced = m3.like(instance="i2")
    response = m1.leave(m1, fenced, by_instance, by_instance, stranger, nobody)
    assert response.error is NONE
    assert response.members == (
        LeftMember(member_id=m1.id, group_instance_id=None),
        LeftMember(member_id=m1.id, group_instance_id=None, error=UNKNOWN),
        LeftMember(member_id=m3.id, group_instance_id="i2", error=FENCED),
        LeftMember(member_id="", group_instance_id="i2"),
        LeftMember(member_id="", group_instance_id="i2", error=UNKNOWN),
        LeftMember(member_id="ghost", group_instance_id=None, error=UNKNOWN),
        LeftMember(member_id="", group_instance_id="i9", error=UNKNOWN),
    )
    assert harness.state() is PREPARING
    assert set(harness.group().members) == {m3.id}


@pytest.mark.parametrize("version", range(6))
def test_leave_of_an_absent_group(version: int) -> None:
    """Before v3 the response has the error, later the member does."""
    response = Harness().client("ghost", id="ghost").leave(version=version)
    if version < 3:
        assert response.error is UNKNOWN
        assert response.members == ()
    else:
        assert response.error is NONE
        assert response.members[0].error is UNKNOWN


def test_leavers_parked_join_is_answered_and_its_sync_never() -> None:
    """A parked join gets 25 and no id; a parked sync never gets a response."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2, synced=False)
    sync = m2.sync()
    m2.leave()
    assert harness.is_given_up(sync)
    m3 = harness.client("m3")
    m3.enlist()
    join = m3.join()
    m3.leave()
    assert harness.response_to(join, JoinCompleted) == JoinCompleted(error=UNKNOWN)


def test_last_leaver_empties_the_group() -> None:
    """Without members the group is Empty at once, with the next generation id."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1)
    m1.leave()
    assert harness.state() is EMPTY
    assert harness.group().generation_id == 2
    assert harness.group().protocol_name is None


# group.max.size


def small(size: int) -> Harness:
    """A coordinator whose groups have a small maximum size."""
    return Harness(attrs.evolve(SETTINGS, group_max_size=size))


def test_full_group_takes_no_new_member() -> None:
    """New members of any kind get 81 and no id; existing members are not affected."""
    harness = small(2)
    m1, m2 = harness.client("m1"), harness.client("m2", instance="i2")
    harness.form(m1, m2)
    for newcomer in (harness.client("m3"), harness.client("m4", instance="i4"), m2.like(id="")):
        assert newcomer.join_now() == JoinCompleted(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert harness.client("m5").join_now(3).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert m2.join_now().error is NONE


def test_last_to_rejoin_a_full_group_is_turned_away() -> None:
    """While preparing, parked joins count; a refused member is removed, nothing completes."""
    harness = small(2)
    m1, m2 = harness.client("m1", rebalance=5.0), harness.client("m2", rebalance=5.0)
    harness.form(m1, m2)
    first = m1.join()
    m3, m4 = harness.client("m3", rebalance=5.0), harness.client("m4", rebalance=5.0)
    m3.enlist()
    m4.enlist()
    second = m3.join()
    assert m2.join_now() == JoinCompleted(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert m4.join_now() == JoinCompleted(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert set(harness.group().members) == {m1.id, m3.id}
    assert not harness.group().pending
    assert harness.is_parked(first)
    again = m1.join()
    assert harness.is_given_up(first)
    assert m1.take(again).generation_id == 3
    assert m3.take(second).generation_id == 3
