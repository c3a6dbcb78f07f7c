"""Scenarios of static members (KIP-345): restarts in each state, what they change, leaving."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario


@scenario("static members")
async def follower_restarts_in_a_stable_group(g: Group) -> None:
    """Versions 5 to 9: the new id takes over, and only the old id is fenced."""
    m1, s2 = g.member("m1"), g.member("s2", instance="i2")
    await g.form(m1, s2)
    for version in range(5, 10):
        again = g.member(f"v{version}", instance="i2")
        await again.join(version)
        await again.sync(version=4)
        await again.heartbeat()
        await s2.heartbeat()
    await m1.heartbeat()
    await g.describe()


@scenario("static members")
async def leader_restarts_in_a_stable_group(g: Group) -> None:
    """From v9 on it has to skip the assignment; before, the answer names its old id as leader."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2")
    await g.form(s1, s2)
    again = s1
    for version in range(5, 10):
        again = g.member(f"v{version}", instance="i1")
        await again.join(version)
        await again.sync()
    rejoin = await again.join().park()
    await s2.join()
    await rejoin.answer()


@scenario("static members")
async def restart_with_another_subscription(g: Group) -> None:
    """Metadata that does not change the vote starts no rebalance, not even from the leader."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2")
    await g.form(s1, s2)
    leader = g.member("leader", instance="i1", protocols={"range": "t2"})
    await leader.join()
    follower = g.member("follower", instance="i2", protocols={"range": "t1,t2"})
    await follower.join()
    await follower.heartbeat()
    await g.describe()
    await follower.join()
    await g.state("Stable")


@scenario("static members")
async def restart_with_more_protocols(g: Group) -> None:
    """A protocol that only one member supports does not count; one that changes the vote does."""
    both = {"range": "t1", "roundrobin": "t1"}
    s1 = g.member("s1", instance="i1", protocols=both)
    s2 = g.member("s2", instance="i2", protocols=both)
    await g.form(s1, s2)
    more = g.member("more", instance="i2", protocols={"sticky": "t1", **both})
    await more.join()
    less = g.member("less", instance="i2", protocols={"roundrobin": "t1"})
    join = await less.join().park()
    await more.heartbeat()
    await s1.heartbeat()
    await s1.join()
    await join.answer()


@scenario("static members")
async def restart_with_nothing_in_common(g: Group) -> None:
    """The restart is refused, and the old process keeps its place."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2")
    await g.form(s1, s2)
    await g.member("odd", instance="i2", protocols={"sticky": "t1"}).join()
    await g.member("odd", instance="i2", protocol_type="connect").join(5)
    await s2.heartbeat()


@scenario("static members")
async def sole_member_restarts_with_another_protocol(g: Group) -> None:
    """Even alone, it needs one of the protocols that were supported."""
    s1 = g.member("s1", instance="i1")
    await g.form(s1)
    await g.member("odd", instance="i1", protocols={"sticky": "t1"}).join()
    again = g.member("again", instance="i1", protocols={"sticky": "t1", "range": "t1"})
    await again.join()


@scenario("static members")
async def restart_while_preparing(g: Group) -> None:
    """The old process's join is fenced; the group waits for the new one as for any member."""
    m1, s2, m3 = g.member("m1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(m1, s2)
    await m3.enlist()
    newcomer = await m3.join().park()
    old = await s2.join().park()
    again = g.member("again", instance="i2")
    join = await again.join().park()
    await old.answer()
    await s2.heartbeat()
    await again.like(id=s2.id).join()
    await m1.join()
    await join.answer()
    await newcomer.answer()


@scenario("static members")
async def unjoined_member_restarts_while_preparing(g: Group) -> None:
    """A restart is the join that was waited for."""
    m1, s2 = g.member("m1"), g.member("s2", instance="i2")
    await g.form(m1, s2)
    rejoin = await m1.join().park()
    await g.member("again", instance="i2").join(7)
    await rejoin.answer()
    await s2.heartbeat()


@scenario("static members")
async def leader_restarts_while_completing(g: Group) -> None:
    """All members join again, because no other member can assign in this generation."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2, synced=False)
    sync = await m2.sync().park()
    again = g.member("again", instance="i1")
    join = await again.join().park()
    await sync.answer()
    await s1.join()
    await s1.sync({s1: "x"})
    await m2.join()
    await join.answer()


@scenario("static members")
async def sole_leader_restarts_while_completing(g: Group) -> None:
    """There is no member to wait for, so the next generation begins at once."""
    s1 = g.member("s1", instance="i1")
    await g.form(s1, synced=False)
    again = g.member("again", instance="i1")
    await again.join(6)
    await s1.sync({s1: "x"})
    await again.sync({again: "a"})


@scenario("static members")
async def member_joins_again_with_its_id(g: Group) -> None:
    """With its member id it is a member like any other: unchanged, changed, as leader."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2")
    await g.form(s1, s2)
    await s2.join()
    s2.protocols = {"range": "t2"}
    join = await s2.join().park()
    await s1.join()
    await join.answer()
    await s2.join()
    await s1.sync({s1: "a1", s2: "a2"})
    rejoin = await s1.join(5).park()
    await s2.join()
    await rejoin.answer()


@scenario("static members")
async def member_need_not_name_its_instance(g: Group) -> None:
    """The member id alone identifies it, even for a join."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2)
    nameless = s1.like(instance=None)
    await nameless.heartbeat()
    await nameless.sync()
    await nameless.commit({"t1-0": 1})
    rejoin = await nameless.join().park()
    await m2.join()
    await rejoin.answer()
    await g.describe()


@scenario("static members")
async def names_that_do_not_belong_together(g: Group) -> None:
    """Every request with another's id, an unknown id, another's instance, an unknown instance."""
    s1, s2, m3 = g.member("s1", instance="i1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(s1, s2, m3)
    for odd in (
        s1.like(instance="i2"),
        s1.like(instance="i9"),
        s1.like(id="ghost"),
        m3.like(instance="i2"),
        m3.like(instance="i9"),
    ):
        await odd.join()
        await odd.sync()
        await odd.heartbeat()
        await odd.commit({"t1-0": 1})
        await odd.leave()
    await g.state("Stable")


@scenario("static members")
async def member_leaves_and_comes_back(g: Group) -> None:
    """A leave frees the instance id at once; its next user is a new member."""
    m1, s2 = g.member("m1"), g.member("s2", instance="i2")
    await g.form(m1, s2)
    await s2.leave()
    await s2.join()
    await s2.heartbeat()
    join = await s2.like(id="").join().park()
    await m1.join()
    await join.answer()
    await g.describe()


@scenario("static members")
async def removed_by_instance_while_its_join_is_parked(g: Group) -> None:
    """Its join gets 25 without an id, and the rebalance continues without the member."""
    m1, s2, m3 = g.member("m1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(m1, s2, m3)
    join = await s2.join().park()
    await g.leave(s2.like(id=""), version=4)
    await join.answer()
    rejoin = await m1.join().park()
    await m3.join()
    await rejoin.answer()


@scenario("static members")
async def removed_by_instance_while_completing(g: Group) -> None:
    """Its parked sync is never answered, and those of the others are refused."""
    m1, s2, m3 = g.member("m1"), g.member("s2", instance="i2"), g.member("m3")
    await g.form(m1, s2, m3, synced=False)
    sync = await s2.sync().park()
    other = await m3.sync().park()
    await g.leave(s2.like(id=""), version=5)
    await other.answer()
    await sync.abandoned()
    await s2.heartbeat()


@scenario("static members")
async def full_group_takes_a_restarted_member_by_its_id_only(g: Group) -> None:
    """A restart comes without a member id and so counts as an additional member."""
    members = [g.member(f"s{number}", instance=f"i{number}") for number in range(1, 5)]
    await g.form(*members)
    again = g.member("again", instance="i2")
    await again.join()
    await members[1].heartbeat()
    await members[1].join()
    await members[3].leave()
    await again.join(5).park()
    await members[1].heartbeat()


@scenario("static members")
async def all_unjoined_members_are_waited_for_again(g: Group) -> None:
    """If no member joins, the wait starts again, as long as there are static members."""
    s1 = g.member("s1", instance="i1", rebalance=0.6)
    s2 = g.member("s2", instance="i2", rebalance=0.6)
    m3 = g.member("m3", rebalance=0.6)
    await g.form(s1, s2, m3)
    await m3.leave()
    await g.sleep(1.3)
    await g.describe()
    join = await s2.join().park()
    await join.answer()
    await s1.heartbeat()
    await s1.sync()


@scenario("static members")
async def session_of_a_restarted_member(g: Group) -> None:
    """The answer without a rebalance keeps the old session; heartbeats bring the new one."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2", session=0.7)
    await g.form(s1, s2)
    again = g.member("again", instance="i2", session=5.0)
    joined = g.now()
    await again.join()
    await g.state("PreparingRebalance", near=0.7, since=joined)


@scenario("static members")
async def shorter_session_of_a_restarted_member(g: Group) -> None:
    """The new session time-out applies from the first heartbeat on."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2", session=5.0)
    await g.form(s1, s2)
    again = g.member("again", instance="i2", session=0.7)
    await again.join()
    beaten = g.now()
    await again.heartbeat()
    await g.state("PreparingRebalance", near=0.7, since=beaten)


@scenario("static members")
async def silent_static_member_expires(g: Group) -> None:
    """Its session ends as any member's; then its instance id is free."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2", session=0.7)
    await g.form(s1, s2)
    beaten = g.now()
    await s2.heartbeat()
    await g.state("PreparingRebalance", near=0.7, since=beaten)
    await s2.heartbeat()
    join = await s2.like(id="").join().park()
    await s1.join()
    await join.answer()


@scenario("static members")
async def restarted_member_that_never_synced_before(g: Group) -> None:
    """The wait for the old process's sync continues, although the new process has synced."""
    m1 = g.member("m1", rebalance=1.0)
    s2 = g.member("s2", instance="i2", rebalance=1.0)
    await g.form(m1, s2, synced=False)
    completed = g.now()
    await m1.sync({m1: "a1", s2: "a2"})
    again = s2.like(id="", label="again")
    await again.join()
    await again.sync()
    await g.state("Stable")
    await g.state("PreparingRebalance", near=1.0, since=completed)
    await g.describe()
