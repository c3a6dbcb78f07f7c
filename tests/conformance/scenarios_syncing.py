"""Scenarios of syncs, heartbeats and leaves."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario

# SyncGroup


@scenario("sync")
async def every_version_of_a_sync(g: Group) -> None:
    """Versions 0 to 5, of the leader and of a follower, with a wrong and the right generation."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    for version in range(6):
        await m1.sync({m1: "other"}, version)
        await m2.sync(version=version)
        await m1.like(generation=0).sync(version=version)
        await m1.like(id="ghost").sync(version=version)


@scenario("sync")
async def sync_copies_of_a_follower(g: Group) -> None:
    """Only the latest copy of a parked sync is ever answered."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    first = await m2.sync().park()
    again = await m2.sync().park()
    await m1.sync({m1: "a1", m2: "a2"})
    await again.answer()
    await first.abandoned()


@scenario("sync")
async def sync_whose_client_hung_up(g: Group) -> None:
    """The member counts as synced, and sends its sync again on another connection."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    sync.hang_up()
    await m1.sync({m1: "a1", m2: "a2"})
    await g.state("Stable")
    await m2.sync()


@scenario("sync")
async def faults_of_a_sync_in_their_order(g: Group) -> None:
    """Instance, member, generation and protocol are checked in this order, the state last."""
    m1, m2 = g.member("m1", instance="i1"), g.member("m2")
    await m1.like(id="ghost").sync()
    await g.form(m1, m2)
    wrong = m2.like(id="ghost", generation=9, protocol="no")
    for state in ("Stable", "PreparingRebalance"):
        await g.state(state)
        await wrong.sync()
        await wrong.like(id=m2.id).sync()
        await m2.like(protocol="no").sync()
        await m2.like(protocol_type="no").sync()
        await m2.like(protocol=None).sync()
        await m2.like(protocol_type=None).sync()
        await m2.like(instance="i9").sync()
        await m2.like(instance="i1", generation=9).sync()
        await m1.like(instance=None).sync(version=4)
        await m2.like(id="").sync(version=3)
        if state == "Stable":
            await m1.join().park()


@scenario("sync")
async def sync_of_an_empty_group(g: Group) -> None:
    """Without members every sync is refused, whatever its generation."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.leave()
    await g.state("Empty")
    await m1.sync()
    await m1.like(generation=2).sync(version=2)
    await m1.like(generation=2, protocol="no").sync()


@scenario("sync")
async def assignments_for_strangers_are_dropped(g: Group) -> None:
    """A leader may assign to any id; only members get an assignment."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m1.sync({m1: "a1", m1.like(id="ghost"): "x"})
    await m2.sync()
    await g.describe()


@scenario("sync")
async def leader_without_assignments(g: Group) -> None:
    """A leader that assigns nothing makes the group Stable too."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    await m1.sync()
    await sync.answer()
    await g.describe()


@scenario("sync")
async def followers_assignments_do_not_count(g: Group) -> None:
    """Assignments in a follower's sync are ignored."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync({m1: "x", m2: "y"}).park()
    await m1.sync({m1: "a1", m2: "a2"})
    await sync.answer()


@scenario("sync")
async def leader_leaves_before_it_syncs(g: Group) -> None:
    """Waiting followers have to join again."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    await m1.leave()
    await sync.answer()
    await m2.heartbeat()
    await m2.sync()
    await m2.commit({"t1-0": 2})
    await m2.join()
    await m2.commit({"t1-0": 2})


@scenario("sync")
async def follower_leaves_while_its_sync_is_parked(g: Group) -> None:
    """Its sync is never answered; the other members have to join again."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2, m3, synced=False)
    sync = await m2.sync().park()
    other = await m3.sync().park()
    await m2.leave(2)
    await other.answer()
    await sync.abandoned()
    await m1.sync({m1: "a1", m3: "a3"})
    join = await m3.join().park()
    await m1.join()
    await join.answer()


@scenario("sync")
async def changed_subscription_cancels_parked_syncs(g: Group) -> None:
    """A changed follower joins again while all others sync."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    m2.protocols = {"range": "t1,t2"}
    join = await m2.join().park()
    await sync.answer()
    await m1.commit({"t1-0": 4})
    await m1.join()
    await join.answer()


@scenario("sync")
async def leader_repeats_its_join_before_it_syncs(g: Group) -> None:
    """The leader gets the members again and may then sync; its first copy had the same."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m1.join(5)
    sync = await m2.sync().park()
    await m1.join(9)
    await m1.sync({m1: "a1", m2: "a2"})
    await sync.answer()


# Heartbeat


@scenario("heartbeat")
async def every_version_of_a_heartbeat(g: Group) -> None:
    """Versions 0 to 4, of a member, a client that is no member, and another generation."""
    m1 = g.member("m1")
    await g.form(m1)
    for version in range(5):
        await m1.heartbeat(version)
        await m1.like(id="ghost").heartbeat(version)
        await m1.like(generation=0).heartbeat(version)
        await g.sibling("absent").member("m", id="m").heartbeat(version)


@scenario("heartbeat")
async def faults_of_a_heartbeat_in_their_order(g: Group) -> None:
    """Instance, member and generation are checked in this order, the state last."""
    m1, s1 = g.member("m1"), g.member("s1", instance="i1")
    await g.form(m1, s1)
    for state in ("Stable", "PreparingRebalance"):
        await g.state(state)
        await s1.like(generation=9).heartbeat()
        await s1.like(id=m1.id, generation=9).heartbeat()
        await s1.like(id="ghost", generation=9).heartbeat()
        await m1.like(instance="i9", generation=9).heartbeat()
        await m1.like(instance="i1").heartbeat()
        await s1.like(instance=None).heartbeat()
        await s1.like(id="").heartbeat()
        await m1.like(generation=-1).heartbeat()
        await m1.heartbeat()
        if state == "Stable":
            await m1.join().park()


@scenario("heartbeat")
async def heartbeat_of_the_generation_to_come(g: Group) -> None:
    """While preparing, the generation is still the old one."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    join = await m2.join().park()
    await m2.like(generation=1).heartbeat()
    await m2.like(generation=2).heartbeat()
    await m1.like(generation=2).heartbeat()
    await m1.join()
    await join.answer()
    await m2.heartbeat()


# LeaveGroup


@scenario("leave")
async def batch_is_judged_in_its_order(g: Group) -> None:
    """By id, by instance, by both, twice, with unknown members in between."""
    m1, s2, m3 = g.member("m1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(m1, s2, m3)
    nameless = s2.like(id="")
    strangers = m1.like(id="ghost"), m1.like(id="", instance="i9"), m1.like(id="")
    await g.leave(m1, m3.like(instance="i2"), nameless, nameless, m1, *strangers)
    await g.describe()
    await m3.heartbeat()
    await m3.join()


@scenario("leave")
async def batch_without_members(g: Group) -> None:
    """An empty batch, and one of unknown members only, start no rebalance."""
    m1 = g.member("m1")
    await g.leave()
    await g.form(m1)
    await g.leave()
    await g.leave(m1.like(id="x"), m1.like(id="y", instance="i1"), version=4)
    await m1.heartbeat()


@scenario("leave")
async def batch_of_all(g: Group) -> None:
    """When all have left the group is Empty, in a generation of its own."""
    m1, s2, m3 = g.member("m1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(m1, s2)
    await m3.join()
    await g.leave(m1, s2.like(id=""), m3)
    await g.state("Empty")
    await g.describe()
    await s2.join()


@scenario("leave")
async def leave_with_a_wrong_instance(g: Group) -> None:
    """A dynamic member has no instance; a static one may leave without naming its own."""
    m1, s1 = g.member("m1"), g.member("s1", instance="i1")
    await g.form(m1, s1)
    await m1.like(instance="i9").leave()
    await m1.like(instance="i1").leave(3)
    await s1.like(instance="i9").leave(4)
    await s1.like(instance=None).leave(3)
    await m1.heartbeat()
    await m1.join()


@scenario("leave")
async def leaver_whose_join_is_parked(g: Group) -> None:
    """Its join is answered with 25 and no id; the join of the others completes."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2)
    await m3.enlist()
    newcomer = await m3.join().park()
    join = await m2.join().park()
    await m3.leave(0)
    await newcomer.answer()
    await m2.leave(1)
    await join.answer()
    await m1.join()


@scenario("leave")
async def last_missing_member_leaves(g: Group) -> None:
    """The join completes as soon as no member is missing."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2, m3)
    m2.protocols = {"range": "t2"}
    join = await m2.join().park()
    await m1.leave()
    await g.state("PreparingRebalance")
    await m3.leave(3)
    await join.answer()


@scenario("leave")
async def pending_ids_leave_in_a_batch(g: Group) -> None:
    """They are known the first time and unknown the second; then the join completes."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    join = await m1.join().park()
    await g.leave(m2, m2, m1.like(id="ghost"))
    await join.answer()
    await m2.leave()


@scenario("leave")
async def leave_while_completing(g: Group) -> None:
    """A follower that leaves before the syncs starts the next rebalance."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m2.leave(4)
    await m1.heartbeat()
    await m1.sync({m1: "a1", m2: "a2"})
    await m1.join()
    await m1.sync({m1: "a1"})


@scenario("leave")
async def leader_leaves_a_stable_group(g: Group) -> None:
    """The remaining member becomes leader, and has no assignment until it syncs one."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    await m1.leave()
    await g.describe()
    await m2.join()
    await m2.sync({m2: "all"})
    await m2.heartbeat()


@scenario("leave")
async def leave_of_an_absent_and_of_an_empty_group(g: Group) -> None:
    """Every version, for a group that never existed and one that became empty."""
    ghost = g.member("ghost", id="ghost")
    for version in range(6):
        await ghost.leave(version)
    await g.member("consumer").commit({"t1-0": 1})
    for version in range(6):
        await ghost.leave(version)
