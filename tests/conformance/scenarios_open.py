"""Scenarios for the classic group coordinator: the open half."""

from __future__ import annotations

import trio

from tests.conformance.driver import Group, scenario

# Member ids (KIP-394)


@scenario("member id")
async def member_id_is_required_from_v4(g: Group) -> None:
    """The first join of a dynamic member is answered with an id for its second join."""
    m1 = g.member("m1")
    await m1.join(4)
    await g.state("Empty")
    await m1.join(4)
    await g.state("CompletingRebalance")


@scenario("member id")
async def member_id_starts_with_the_client_id(g: Group) -> None:
    """A dynamic member's id is its client id, a static member's its instance id, and a UUID."""
    dynamic, static = g.member("m1"), g.member("s1", instance="i1")
    await dynamic.join()
    await static.join()
    for member, prefix in (dynamic, "m1-"), (static, "i1-"):
        rest = member.id.removeprefix(prefix)
        g.note(f"{member.label}: {prefix} and {len(rest)} characters")


@scenario("member id")
async def pending_member_holds_the_join_open(g: Group) -> None:
    """A new pending id starts no rebalance, but a rebalance waits for its owner."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.join()
    await m1.heartbeat()
    rejoin = await m1.join().park()
    await m2.join()
    await rejoin.answer()


@scenario("member id")
async def pending_member_that_leaves_lets_the_join_complete(g: Group) -> None:
    """A member that leaves before its second join is not waited for any longer."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.join(5)
    rejoin = await m1.join().park()
    await m2.leave(3)
    await rejoin.answer()
    await m2.join(5)


@scenario("member id")
async def unknown_member_ids_cannot_join(g: Group) -> None:
    """An id that the group did not hand out is refused in every state; a new one is not given."""
    m1, ghost = g.member("m1"), g.member("ghost", id="ghost")
    await ghost.join()
    await g.state("Dead")
    await g.form(m1, synced=False)
    await ghost.join()
    await m1.sync({m1: "a1"})
    await ghost.join(5)
    await m1.leave()
    await g.state("Empty")
    await ghost.join()


# JoinGroup


@scenario("join")
async def one_member_from_join_to_stable(g: Group) -> None:
    """A member alone is leader of generation 1; its own sync makes the group Stable."""
    m1 = g.member("m1")
    await m1.enlist()
    await m1.join()
    await g.state("CompletingRebalance")
    await m1.sync({m1: "a1"})
    await g.state("Stable")


@scenario("join")
async def second_member_starts_a_rebalance(g: Group) -> None:
    """The new member waits until the other has rejoined; only the leader gets the members."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    join = await m2.join(7).park()
    await g.state("PreparingRebalance")
    await m1.join(6)
    await join.answer()


@scenario("join")
async def join_repeated_while_completing(g: Group) -> None:
    """A join that was answered already is answered again, in the same generation."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m2.join()
    await m1.join()
    await g.state("CompletingRebalance")


@scenario("join")
async def join_repeated_while_parked(g: Group) -> None:
    """Only the latest copy of a parked join is ever answered."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    first = await m2.join().park()
    again = await m2.join().park()
    await m1.join()
    await again.answer()
    await first.abandoned()


@scenario("join")
async def leader_rejoining_a_stable_group_starts_a_rebalance(g: Group) -> None:
    """A leader requests a new assignment by joining again unchanged."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    rejoin = await m1.join().park()
    await m2.heartbeat()
    await m2.join()
    await rejoin.answer()


@scenario("join")
async def follower_with_a_new_subscription_starts_a_rebalance(g: Group) -> None:
    """Changed metadata of a follower is a rebalance, after which the leader sees it."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    m2.protocols = {"range": "t1,t2"}
    rejoin = await m2.join().park()
    await m1.heartbeat()
    await m1.join()
    await rejoin.answer()


@scenario("join")
async def protocol_with_most_votes_wins(g: Group) -> None:
    """Each member votes for its first protocol; the leader gets the metadata for the winner."""
    m1 = g.member("m1", protocols={"range": "t1", "roundrobin": "t2"})
    m2 = g.member("m2", protocols={"roundrobin": "t2", "range": "t1"})
    m3 = g.member("m3", protocols={"roundrobin": "t2", "range": "t1"})
    await g.form(m1, m2, m3, synced=False)
    await m1.join()
    await m2.join()


@scenario("join")
async def member_without_a_common_protocol_is_refused(g: Group) -> None:
    """A member must know a protocol that all members know, of the same type."""
    await g.form(g.member("m1"))
    await g.member("m2", protocols={"roundrobin": "t1"}).join()
    await g.member("m3", protocol_type="connect", protocols={"range": b"work"}).join(5)
    await g.member("m4", instance="i4", protocols={"sticky": "t1"}).join()
    await g.state("Stable")


@scenario("join")
async def first_member_must_name_a_protocol(g: Group) -> None:
    """A group cannot be started without a protocol or without a protocol type."""
    await g.member("m1", protocols={}).join()
    await g.member("m2", protocol_type="").join()


@scenario("join")
async def emptied_group_continues_counting_generations(g: Group) -> None:
    """Becoming empty is a generation of its own; ids from before are invalid."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m1.leave()
    await g.state("Empty")
    await m1.join()
    await m2.enlist()
    await m2.join()


# SyncGroup


@scenario("sync")
async def followers_wait_for_the_leaders_sync(g: Group) -> None:
    """Syncs are parked until the leader's; a member that the leader left out gets no bytes."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2, m3, synced=False)
    second = await m2.sync().park()
    third = await m3.sync(version=3).park()
    await m1.sync({m1: "a1", m2: "a2"})
    await second.answer()
    await third.answer()
    await g.state("Stable")


@scenario("sync")
async def sync_repeated_in_stable(g: Group) -> None:
    """Once Stable, a sync returns the assignment that was made and changes nothing."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    await m2.sync()
    await m1.sync({m1: "other", m2: "other"})
    await m2.sync(version=0)


@scenario("sync")
async def sync_refusals(g: Group) -> None:
    """Unknown members, other generations and other protocols; the member is checked first."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m1.like(id="ghost").sync({m1: "a1"})
    await m1.like(id="ghost", generation=7).sync({m1: "a1"})
    await m1.like(generation=1).sync({m1: "a1"})
    await m1.like(generation=3).sync({m1: "a1"})
    await m1.like(protocol="roundrobin").sync({m1: "a1"})
    await m1.like(protocol_type="connect").sync({m1: "a1"})
    await m1.like(protocol=None, protocol_type=None).sync({m1: "a1"})
    await g.state("CompletingRebalance")


@scenario("sync")
async def newcomer_cancels_parked_syncs(g: Group) -> None:
    """A join that starts another rebalance sends waiting followers back to join."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2, synced=False)
    sync = await m2.sync().park()
    await m3.enlist()
    newcomer = await m3.join().park()
    await sync.answer()
    await m1.sync({m1: "a1", m2: "a2"})
    rejoin = await m2.join().park()
    await m1.join()
    await rejoin.answer()
    await newcomer.answer()


# Heartbeat


@scenario("heartbeat")
async def heartbeat_in_every_state(g: Group) -> None:
    """Fine in CompletingRebalance and Stable, 27 while preparing, 25 where there is no member."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.like(id="ghost", generation=1).heartbeat()
    await g.form(m1, synced=False)
    await m1.heartbeat()
    await m1.sync({m1: "a1"})
    await m1.heartbeat()
    await m2.enlist()
    join = await m2.join().park()
    await m1.heartbeat()
    await m1.leave()
    await join.answer()
    await m2.leave()
    await g.state("Empty")
    await m2.heartbeat()


@scenario("heartbeat")
async def heartbeats_keep_a_member(g: Group) -> None:
    """Each heartbeat restarts the session; the last one leaves one session timeout."""
    m1 = g.member("m1", session=1.0)
    await g.form(m1)
    await g.keep_alive(m1, during=2.0, every=0.2)
    last = g.now()
    await m1.heartbeat()
    await g.state("Empty", near=1.0, since=last)
    await m1.heartbeat()


# Timeouts


@scenario("timeouts")
async def silent_follower_is_removed(g: Group) -> None:
    """When a session expires, the other members have to rejoin."""
    m1, m2 = g.member("m1"), g.member("m2", session=1.0)
    await g.form(m1, m2)
    last = g.now()
    await m2.heartbeat()
    await g.state("PreparingRebalance", near=1.0, since=last)
    await m2.heartbeat()
    await m1.heartbeat()
    await m1.join()


@scenario("timeouts")
async def member_that_does_not_rejoin_is_dropped(g: Group) -> None:
    """At the rebalance timeout the join completes without those who did not come."""
    m1, m2 = g.member("m1", rebalance=0.8), g.member("m2", rebalance=0.8)
    await g.form(m1)
    await m2.enlist()
    await m2.join().answer(near=0.8)
    await m1.heartbeat()
    await m1.join()


@scenario("timeouts")
async def join_completes_when_the_last_missing_member_expires(g: Group) -> None:
    """A session that ends before the rebalance timeout ends the waiting too."""
    m1, m2 = g.member("m1", session=1.2), g.member("m2")
    await g.form(m1)
    last = g.now()
    await m1.heartbeat()
    await m2.enlist()
    join = await m2.join().park()
    await join.answer(near=1.2, since=last)


@scenario("timeouts")
async def join_waits_for_pending_members_only_so_long(g: Group) -> None:
    """The rebalance timeout ends the waiting for an id's second join, but not the id."""
    m1, m2 = g.member("m1", rebalance=0.8), g.member("m2", rebalance=0.8)
    await g.form(m1)
    await m2.enlist()
    await m1.join().answer(near=0.8)
    join = await m2.join().park()
    await m1.join()
    await join.answer()


@scenario("timeouts")
async def commits_during_a_rebalance_keep_a_member(g: Group) -> None:
    """A member that is still finishing its work needs no heartbeats while it commits."""
    m1, m2 = g.member("m1", session=1.0), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    newcomer = await m2.join().park()
    for offset in range(8):
        await m1.commit({"t1-0": offset}).quiet()
        await trio.sleep(0.25)
    await m1.heartbeat()
    await m1.join()
    await newcomer.answer()
    await g.fetch("t1-0")


@scenario("timeouts")
async def followers_that_do_not_sync_are_dropped(g: Group) -> None:
    """A follower has one rebalance timeout to sync, even though the group is Stable by then."""
    members = m1, m2, m3 = [g.member(label, rebalance=1.2) for label in ("m1", "m2", "m3")]
    await g.form(*members)
    completed = await g.reform(*members)
    await m1.sync({m1: "a1", m2: "a2", m3: "a3"})
    await m3.sync()
    await g.state("Stable")
    await g.state("PreparingRebalance", near=1.2, since=completed)
    await m2.heartbeat()
    rejoin = await m1.join().park()
    await m3.join()
    await rejoin.answer()


# LeaveGroup


@scenario("leave")
async def member_leaves_alone(g: Group) -> None:
    """Before version 3 a leave names one member and has one error."""
    for version in range(6):
        member = g.member(f"m{version}")
        await g.form(member)
        await member.leave(version)
        await g.state("Empty")
        await member.leave(version)


@scenario("leave")
async def several_members_leave_at_once(g: Group) -> None:
    """One request may remove several members; the others have to rejoin."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2, m3)
    await g.leave(m2, m3, version=4)
    await g.state("PreparingRebalance")
    await m2.heartbeat()
    await m1.heartbeat()
    await m1.join()


@scenario("leave")
async def strangers_cannot_leave(g: Group) -> None:
    """From version 3 on the error is the member's and not the request's, group or no group."""
    ghost = g.member("ghost", id="ghost")
    await ghost.leave(2)
    await ghost.leave(3)
    await g.form(g.member("m1"))
    await ghost.leave(1)
    await ghost.leave(5)
    await ghost.like(id="", instance="i1").leave(5)
    await g.state("Stable")


# Static members (KIP-345)


@scenario("static members")
async def static_member_needs_no_member_id(g: Group) -> None:
    """A member with an instance id is admitted with its first join."""
    m1 = g.member("m1", instance="i1")
    await m1.join(5)
    await m1.sync({m1: "a1"})
    await g.describe(version=4)
    await g.describe(version=3)


@scenario("static members")
async def static_member_is_replaced_without_a_rebalance(g: Group) -> None:
    """A restarted static leader takes over id and work; before v9 it hears its old id as leader."""
    m1, m2 = g.member("m1", instance="i1"), g.member("m2", instance="i2")
    await g.form(m1, m2)
    again = g.member("again", instance="i1")
    await again.join(8)
    await m2.heartbeat()
    await again.sync()
    await again.heartbeat()
    await m1.heartbeat()
    await m1.commit({"t1-0": 1})
    await g.describe()


@scenario("static members")
async def replacement_that_changes_the_protocol_rebalances(g: Group) -> None:
    """If a replacement changes the outcome of the vote, the group must rebalance."""
    m1 = g.member("m1", instance="i1", protocols={"range": "t1", "roundrobin": "t1"})
    await g.form(m1)
    again = g.member("again", instance="i1", protocols={"roundrobin": "t1", "range": "t1"})
    await again.join()
    await m1.heartbeat()


@scenario("static members")
async def replacement_while_completing_rebalances(g: Group) -> None:
    """The leader may already be assigning to the old id, so everyone joins again."""
    m1, m2, m3 = g.member("m1"), g.member("m2", instance="i2"), g.member("m3")
    await g.form(m1, m2, m3, synced=False)
    old = await m2.sync().park()
    other = await m3.sync().park()
    again = g.member("again", instance="i2")
    newcomer = await again.join().park()
    await old.answer()
    await other.answer()
    await m1.heartbeat()
    rejoin = await m1.join().park()
    await m3.join()
    await rejoin.answer()
    await newcomer.answer()


@scenario("static members")
async def silent_static_member_stays_through_a_rebalance(g: Group) -> None:
    """A static member that does not rejoin keeps its place until its session expires."""
    m1 = g.member("m1", rebalance=0.8)
    m2 = g.member("m2", rebalance=0.8, instance="i2")
    await g.form(m1, m2)
    await m1.join().answer(near=0.8)
    await m2.heartbeat()
    await m2.join()
    await m2.heartbeat()


@scenario("static members")
async def static_member_is_removed_by_instance_id(g: Group) -> None:
    """An administrator may remove a static member without knowing its member id."""
    m1, m2 = g.member("m1", instance="i1"), g.member("m2")
    await g.form(m1, m2)
    await g.leave(g.member("", instance="i1"), version=3)
    await m2.heartbeat()
    await m1.heartbeat()
    await m2.join()


# OffsetCommit


@scenario("offset commit")
async def commits_in_a_stable_group(g: Group) -> None:
    """Member id and generation must both be current; whose partition it is does not matter."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    await m1.commit({"t1-0": 10})
    await m2.commit({"t1-0": 11})
    await m1.like(generation=1).commit({"t1-0": 12})
    await m1.like(generation=3).commit({"t1-0": 12})
    await m1.like(generation=-1).commit({"t1-0": 12})
    await m1.like(id="").commit({"t1-0": 12})
    await m1.like(id="ghost").commit({"t1-0": 12})
    await g.member("consumer").commit({"t1-0": 12})
    await g.fetch("t1-0")


@scenario("offset commit")
async def commits_while_completing(g: Group) -> None:
    """Between join and sync no member may commit: the assignment is not known yet."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2, synced=False)
    await m1.commit({"t1-0": 10})
    await m2.commit({"t1-0": 10}, version=6)
    await m1.like(generation=1).commit({"t1-0": 10})
    await m1.like(id="ghost").commit({"t1-0": 10})
    await g.member("consumer").commit({"t1-0": 10})
    await g.fetch("t1-0")


@scenario("offset commit")
async def commits_to_an_absent_group(g: Group) -> None:
    """Without a generation a commit makes a group; with one the group is missed (69 from v9)."""
    ghost = g.member("ghost", id="ghost", generation=5)
    await ghost.commit({"t1-0": 10}, version=8)
    await ghost.commit({"t1-0": 10}, version=9)
    await g.state("Dead")
    await g.member("consumer").commit({"t1-0": 10})
    await g.describe()
    await g.fetch("t1-0")


@scenario("offset commit")
async def metadata_of_an_offset_is_limited(g: Group) -> None:
    """A partition whose metadata is too long is refused alone."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.commit({"t1-0": (10, "x" * 4096), "t1-1": (10, "x" * 4097), "t1-2": (10, "short")})
    await g.fetch("t1-0", "t1-1", "t1-2")


@scenario("offset commit")
async def every_version_of_a_commit(g: Group) -> None:
    """Versions 2 to 9; the leader epoch is kept from version 6 on."""
    m1 = g.member("m1")
    await g.form(m1)
    for version in range(2, 10):
        epoch = 3 if version >= 6 else None
        await m1.commit({"t1-0": version}, version, epoch=epoch)
        await g.fetch("t1-0", version=5)


# OffsetFetch


@scenario("offset fetch")
async def committed_offsets_are_fetched(g: Group) -> None:
    """Versions 1 to 9; a partition without an offset, known or not, has none."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.commit({"t1-0": (10, "note"), "t2-1": 20})
    for version in range(1, 10):
        await g.fetch("t1-0", "t1-1", "t2-1", "nowhere-0", version=version)


@scenario("offset fetch")
async def all_offsets_of_a_group_are_fetched(g: Group) -> None:
    """Null topics mean every partition with an offset, from version 2 on."""
    await g.fetch(version=2, everything=True)
    await g.fetch("t1-0", version=7)
    await g.member("consumer").commit({"t1-0": 10, "t1-2": 12, "t2-1": 20})
    await g.fetch(version=2, everything=True)
    await g.fetch(version=7, everything=True, stable=True)


# Transactional commits (KIP-447)


@scenario("transactional commit")
async def transactional_commit_shows_after_the_transaction(g: Group) -> None:
    """Until the transaction ends, the old offset shows, or 88 to those who want it stable."""
    m1, producer = g.member("m1"), g.producer("p1")
    await g.form(m1)
    await m1.commit({"t1-0": 10})
    await producer.begin(g)
    await producer.commit(m1, {"t1-0": 11, "t1-1": 12})
    await g.fetch("t1-0", "t1-1")
    await g.fetch("t1-0", "t1-1", "t1-2", stable=True)
    await producer.end(g, "t1-0", "t1-1", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)


@scenario("transactional commit")
async def transactional_commit_is_fenced(g: Group) -> None:
    """From version 3 on a transactional commit is checked like any commit of a member."""
    m1, m2 = g.member("m1"), g.member("m2", instance="i2")
    await g.form(m1, m2)
    producer = g.producer("p1")
    await producer.begin(g)
    await producer.commit(m1.like(generation=1), {"t1-0": 10})
    await producer.commit(m1.like(id="ghost"), {"t1-0": 10})
    await producer.commit(m1.like(instance="i2"), {"t1-0": 10})
    await producer.commit(m1.like(instance="i3"), {"t1-0": 10})
    await producer.commit(m2, {"t1-0": 10})


# Limits


@scenario("limits")
async def session_timeout_must_be_in_range(g: Group) -> None:
    """The broker's limits are included in what is allowed."""
    for session in (0.099, 1800.001, 0.1, 1800.0):
        await g.member("m", session=session).join()


@scenario("limits")
async def members_need_a_group_id(g: Group) -> None:
    """The empty group id is refused before anything else is looked at."""
    m1 = g.sibling("nameless", group_id="").member("m1", session=0.001)
    await m1.join()
    await m1.join(3)
    await m1.sync(version=4)
    await m1.heartbeat()
    await m1.leave(2)
    await m1.leave(5)


@scenario("limits")
async def full_group_takes_no_more_members(g: Group) -> None:
    """Newcomers of every version are refused; members are not affected."""
    m1, m2, m3, m4 = [g.member(label) for label in ("m1", "m2", "m3", "m4")]
    await g.form(m1, m2, m3, m4)
    await g.member("m5").join()
    await g.member("m6").join(3)
    await g.member("m7", instance="i7").join()
    await m3.join()
    await m4.leave()
    await g.member("m8").join()


# Administration


@scenario("administration")
async def absent_group_is_described_as_dead(g: Group) -> None:
    """Version 6 calls a missing group an error (KIP-1043), older versions only Dead."""
    for version in (0, 5, 6):
        await g.describe(version=version)


@scenario("administration")
async def description_follows_the_group(g: Group) -> None:
    """Metadata and protocol are described in Stable only; assignments stay until the next one."""
    m1, m2 = g.member("m1"), g.member("m2", instance="i2")
    await g.form(m1, m2, synced=False)
    await g.describe()
    await m1.sync({m1: "a1", m2: "a2"})
    await g.describe()
    join = await m1.join().park()
    await g.describe()
    await m2.join()
    await join.answer()
    await g.describe()
    await g.leave(m1, m2)
    await g.state("Empty")
    await g.describe()


@scenario("administration")
async def groups_are_listed_by_state_and_type(g: Group) -> None:
    """Filters are case-insensitive; state and type are listed from versions 4 and 5 on."""
    empty, simple = g.sibling("empty"), g.sibling("simple")
    await g.form(g.member("m1"))
    leaver = empty.member("leaver")
    await empty.form(leaver)
    await leaver.leave()
    await empty.state("Empty")
    await simple.member("consumer").commit({"t1-0": 1})
    for version in range(6):
        await g.list_groups(version)
    await g.list_groups(4, states=["Stable"])
    await g.list_groups(4, states=["empty"])
    await g.list_groups(5, states=["Empty", "STABLE"], kinds=["classic"])
    await g.list_groups(5, kinds=["consumer"])


@scenario("administration")
async def only_an_empty_group_is_deleted(g: Group) -> None:
    """Deleting takes a group's offsets with it."""
    m1 = g.member("m1")
    await g.delete()
    await g.form(m1)
    await m1.commit({"t1-0": 10})
    await g.delete()
    await m1.leave()
    await g.state("Empty")
    await g.delete()
    await g.state("Dead")
    await g.fetch("t1-0")
    await g.delete()


@scenario("administration")
async def offsets_of_subscribed_topics_stay(g: Group) -> None:
    """A group of consumers protects the offsets of what any of them subscribes to (KIP-496)."""
    m1 = g.member("m1", protocols={"range": "t1"})
    await g.form(m1)
    await m1.commit({"t1-0": 10, "t2-0": 20})
    await g.delete_offsets("t1-0", "t2-0", "t2-1")
    await g.fetch(everything=True)
    await m1.leave()
    await g.state("Empty")
    await g.delete_offsets("t1-0")
    await g.fetch(everything=True)


# Initial rebalance delay (KIP-134)


@scenario("initial delay", broker="delay")
async def first_join_waits_for_more_members(g: Group) -> None:
    """An empty group's first join is held for the initial rebalance delay."""
    m1 = g.member("m1")
    await m1.enlist()
    await m1.join().answer(near=1.0)


@scenario("initial delay", broker="delay")
async def initial_delay_is_not_cut_short(g: Group) -> None:
    """Even a member with a shorter rebalance timeout waits for the whole first period."""
    m1 = g.member("m1", rebalance=0.3)
    await m1.enlist()
    await m1.join().answer(near=1.0)


@scenario("initial delay", broker="delay")
async def members_of_the_initial_delay_share_a_generation(g: Group) -> None:
    """A second member within the delay extends it once; both start in generation 1."""
    m1, m2 = g.member("m1"), g.member("m2", instance="i2")
    await m1.enlist()
    first = await m1.join().park()
    second = m2.join().send()
    await first.answer(near=2.0)
    await second.answer()


@scenario("initial delay", broker="delay")
async def later_rebalances_are_not_delayed(g: Group) -> None:
    """Only a group that was empty waits; a join that completes later completes at once."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    newcomer = await m2.join().park()
    await m1.join().answer(near=0.0)
    await newcomer.answer()


@scenario("initial delay", broker="delay")
async def emptied_group_is_delayed_again(g: Group) -> None:
    """A group whose last member has left is as empty as a new one."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m1.leave()
    await g.state("Empty")
    await m2.enlist()
    await m2.join().answer(near=1.0)
