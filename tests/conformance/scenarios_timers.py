"""Scenarios of timers: sessions, rebalances, syncs, and what moves or spares them."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario


@scenario("timeouts")
async def pending_id_expires_with_its_session(g: Group) -> None:
    """The session time-out of the join that got the id applies; then the id is unknown."""
    m1, m2 = g.member("m1"), g.member("m2", session=0.7)
    await g.form(m1)
    sent_at = g.now()
    await m2.enlist()
    rejoin = await m1.join().park()
    await rejoin.answer(near=0.7, since=sent_at)
    await m2.join()


@scenario("timeouts")
async def pending_id_of_an_empty_group_expires(g: Group) -> None:
    """Then the group is as empty as before."""
    m1 = g.member("m1", session=0.5)
    await m1.enlist()
    await g.sleep(0.9)
    await m1.join()
    await g.describe()


@scenario("timeouts")
async def sessions_begin_with_the_generation(g: Group) -> None:
    """A new member has no session before its first join has completed."""
    m1, m2 = g.member("m1", rebalance=1.5), g.member("m2", session=0.4)
    await g.form(m1)
    await m2.enlist()
    join = await m2.join().park()
    await g.sleep(0.9)
    await g.state("PreparingRebalance")
    await m1.join()
    completed = g.now()
    await join.answer()
    await g.state("PreparingRebalance", near=0.4, since=completed)


@scenario("timeouts")
async def parked_join_spares_a_member(g: Group) -> None:
    """A member with a parked join cannot expire; its session restarts with the answer."""
    m1, m2 = g.member("m1"), g.member("m2", session=0.5)
    await g.form(m1, m2)
    m2.protocols = {"range": "t2"}
    join = await m2.join().park()
    await g.sleep(1.2)
    completed = g.now()
    await m1.join()
    await join.answer()
    await g.state("PreparingRebalance", near=0.5, since=completed)


@scenario("timeouts")
async def parked_sync_spares_a_member(g: Group) -> None:
    """A member with a parked sync cannot expire either."""
    m1, m2 = g.member("m1"), g.member("m2", session=0.5)
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    await g.sleep(1.2)
    await m1.sync({m1: "a1", m2: "a2"})
    synced = g.now()
    await sync.answer()
    await g.state("PreparingRebalance", near=0.5, since=synced)


@scenario("timeouts")
async def unjoined_member_expires_while_preparing(g: Group) -> None:
    """Without requests of the member its session runs in every state of the group."""
    m1, m2 = g.member("m1"), g.member("m2", session=0.9)
    await g.form(m1, m2)
    beaten = g.now()
    await m2.heartbeat()
    rejoin = await m1.join().park()
    await rejoin.answer(near=0.9, since=beaten)
    await m2.heartbeat()


@scenario("timeouts")
async def heartbeats_while_preparing_keep_a_member(g: Group) -> None:
    """A heartbeat answered with REBALANCE_IN_PROGRESS extends the session too."""
    m1 = g.member("m1", rebalance=1.6)
    m2 = g.member("m2", session=0.7, rebalance=1.6)
    await g.form(m1, m2)
    rejoin = m1.join().send()
    await g.state("PreparingRebalance")
    await g.keep_alive(m2, during=1.2, every=0.2)
    await m2.join()
    await rejoin.answer()


@scenario("timeouts")
async def joins_and_syncs_of_a_stable_group_do_not_keep_a_member(g: Group) -> None:
    """If answered at once, they do not extend the session; nor does a transactional commit."""
    m1, m2, producer = g.member("m1"), g.member("m2", session=1.2), g.producer("p1")
    await g.form(m1, m2)
    await producer.begin(g)
    beaten = g.now()
    await m2.heartbeat()
    await g.sleep(0.6)
    await m2.join()
    await m2.sync()
    await producer.commit(m2, {"t1-0": 3})
    await g.state("PreparingRebalance", near=1.2, since=beaten)


@scenario("timeouts")
async def commits_of_a_stable_group_keep_a_member(g: Group) -> None:
    """A commit extends the session."""
    m1 = g.member("m1", session=0.8)
    await g.form(m1)
    await g.sleep(0.5)
    committed = g.now()
    await m1.commit({"t1-0": 3})
    await g.state("Empty", near=0.8, since=committed)


@scenario("timeouts")
async def refused_requests_do_not_keep_a_member(g: Group) -> None:
    """A request refused for its generation or identity does not extend the session."""
    m1 = g.member("m1", session=1.0)
    await g.form(m1)
    beaten = g.now()
    await m1.heartbeat()
    await g.sleep(0.5)
    await m1.like(generation=0).heartbeat()
    await m1.like(generation=9).commit({"t1-0": 3})
    await m1.like(instance="i1").heartbeat()
    await m1.like(protocol="no").sync()
    await g.state("Empty", near=1.0, since=beaten)


@scenario("timeouts")
async def leader_expires_before_it_syncs(g: Group) -> None:
    """The waiting followers have to join again."""
    m1, m2 = g.member("m1", session=0.8), g.member("m2")
    await g.form(m1, m2, synced=False)
    formed = g.now()
    sync = await m2.sync().park()
    await sync.answer(near=0.8, since=formed)
    await m2.join()


@scenario("timeouts")
async def last_member_expires(g: Group) -> None:
    """The group is Empty in a new generation, and keeps its offsets."""
    m1 = g.member("m1", session=0.5)
    await g.form(m1)
    await m1.commit({"t1-0": 3})
    beaten = g.now()
    await m1.heartbeat()
    await g.state("Empty", near=0.5, since=beaten)
    await g.describe()
    await g.fetch(everything=True)
    await m1.join()
    m2 = g.member("m2", instance="i2")
    await m2.join()


@scenario("timeouts")
async def session_timeout_changes_with_a_join(g: Group) -> None:
    """An unchanged follower's new session time-out is ignored; a rebalance applies it."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    m2.session = 0.6
    await m2.join()
    await m2.heartbeat()
    await g.sleep(1.0)
    await g.state("Stable")
    m2.protocols = {"range": "t2"}
    join = await m2.join().park()
    await m1.join()
    completed = g.now()
    await join.answer()
    await g.state("PreparingRebalance", near=0.6, since=completed)


@scenario("timeouts")
async def rebalance_timeout_is_the_longest(g: Group) -> None:
    """The longest time-out of all members counts, as known before the rebalance."""
    m1, m2 = g.member("m1", rebalance=0.4), g.member("m2", rebalance=1.1)
    await g.form(m1, m2)
    await m1.join().answer(near=1.1)
    await m2.heartbeat()


@scenario("timeouts")
async def rebalance_timeout_changes_with_a_join(g: Group) -> None:
    """The join that begins a rebalance may change the time-out of that rebalance."""
    m1, m2 = g.member("m1"), g.member("m2", rebalance=0.5)
    await g.form(m1, m2)
    m1.rebalance = 0.9
    await m1.join().answer(near=0.9)
    await g.describe()


@scenario("timeouts")
async def patient_newcomer_does_not_move_the_end(g: Group) -> None:
    """The length of a rebalance is fixed when it begins."""
    m1 = g.member("m1", rebalance=0.9)
    m2, m3 = g.member("m2", rebalance=0.9), g.member("m3", rebalance=0.9)
    await g.form(m1, m2)
    began = g.now()
    rejoin = await m1.join().park()
    m3.rebalance = 30.0
    await m3.enlist()
    newcomer = await m3.join().park()
    await rejoin.answer(near=0.9, since=began)
    await newcomer.answer()


@scenario("timeouts")
async def rebalance_timeout_of_version_0(g: Group) -> None:
    """Version 0 has no rebalance time-out: the session time-out is used."""
    m1, m2 = g.member("m1", session=0.8), g.member("m2", session=0.8)
    await m1.join(0)
    await m1.sync({m1: "a1"}, 0)
    join = m2.join(0).send()
    await join.answer(near=0.8)
    await m1.heartbeat(0)


@scenario("timeouts")
async def no_member_syncs(g: Group) -> None:
    """At the rebalance time-out, every member that has not synced is removed: here all."""
    m1, m2 = g.member("m1", rebalance=0.7), g.member("m2", rebalance=0.7)
    await g.form(m1, m2, synced=False)
    await g.state("Empty", near=0.7, since=g.now())
    await m1.heartbeat()
    m3 = g.member("m3", instance="i3")
    await m3.join()


@scenario("timeouts")
async def leader_does_not_sync(g: Group) -> None:
    """The leader is removed; members that have synced have to join again."""
    m1, m2 = g.member("m1", rebalance=0.7), g.member("m2", rebalance=0.7)
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    await sync.answer(near=0.7)
    await g.describe()
    await m2.join()
    await m2.heartbeat()


@scenario("timeouts")
async def heartbeats_do_not_replace_a_sync(g: Group) -> None:
    """A static member that only sends heartbeats is removed at the time-out for syncs."""
    m1 = g.member("m1", rebalance=1.0)
    s2 = g.member("s2", instance="i2", rebalance=1.0)
    await g.form(m1, s2)
    await m1.join().answer(near=1.0)
    completed = g.now()
    await m1.sync({m1: "a1", s2: "a2"})
    await s2.heartbeat()
    await g.state("PreparingRebalance", near=1.0, since=completed)
    await g.describe()


@scenario("timeouts")
async def all_have_synced_and_the_time_for_it_passes(g: Group) -> None:
    """At the time-out for syncs nothing happens if none is missing."""
    m1, m2 = g.member("m1", rebalance=0.6), g.member("m2", rebalance=0.6)
    await g.form(m1, m2)
    await g.sleep(0.9)
    await m1.heartbeat()
    await m2.heartbeat()
    await g.state("Stable")


@scenario("timeouts")
async def late_sync_of_a_dropped_follower(g: Group) -> None:
    """The member is unknown by then, and may only return as a new one."""
    m1, m2 = g.member("m1", rebalance=0.7), g.member("m2", rebalance=0.7)
    await g.form(m1, m2, synced=False)
    formed = g.now()
    await m1.sync({m1: "a1", m2: "a2"})
    await g.state("PreparingRebalance", near=0.7, since=formed)
    await m2.sync()
    await m2.join()
    await m1.join()
    await m2.heartbeat()


@scenario("timeouts")
async def turned_away_member_is_waited_for_in_vain(g: Group) -> None:
    """A member refused for the group's size is removed, but the join waits its full time."""
    members = [g.member(f"m{number}", rebalance=1.5) for number in range(1, 5)]
    m5, s6 = g.member("m5", rebalance=1.5), g.member("s6", instance="i6", rebalance=1.5)
    await g.form(*members)
    began = g.now()
    rejoin = await members[0].join().park()
    await m5.join()
    second = await s6.join().park()
    await members[1].join().park()
    third = await members[2].join().park()
    await members[3].join()
    await g.describe()
    await rejoin.answer(near=1.5, since=began)
    await second.answer()
    await third.answer()


@scenario("timeouts")
async def hung_up_newcomer_is_kept_for_long(g: Group) -> None:
    """A new member's parked join is kept for minutes, even if its connection is closed."""
    m1, m2 = g.member("m1", rebalance=0.8), g.member("m2", session=0.3, rebalance=0.8)
    await g.form(m1)
    await m2.enlist()
    began = g.now()
    join = await m2.join().park()
    join.hang_up()
    await g.sleep(0.5)
    await g.state("PreparingRebalance")
    await g.wait_for("CompletingRebalance", 1)
    await g.state("Empty", near=1.1, since=began)
