"""Scenarios of limits, of what an administrator sees, deletes and lists."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario

# Limits


@scenario("limits")
async def empty_group_id_of_every_request(g: Group) -> None:
    """Members get 24; for offsets and administration such a group merely does not exist."""
    nameless = g.sibling("nameless", group_id="")
    m1 = nameless.member("m1", id="x", generation=5, session=0.001)
    await m1.join()
    await m1.like(instance="i1").join(5)
    await m1.sync()
    await m1.like(protocol="range").sync()
    await m1.sync(version=3)
    await m1.heartbeat(3)
    await m1.leave()
    await m1.leave(1)
    await m1.commit({"t1-0": 1})
    await m1.commit({"t1-0": 1}, 8)
    for version in (0, 5, 6):
        await nameless.describe(version=version)
    await nameless.delete()
    await nameless.delete_offsets("t1-0")
    await nameless.fetch("t1-0")
    await nameless.fetch("t1-0", version=7)


@scenario("limits")
async def session_timeout_of_members(g: Group) -> None:
    """Every join checks it, also a current member's, and before anything about the group."""
    m1, s1 = g.member("m1"), g.member("s1", instance="i1")
    await g.form(m1, s1)
    await m1.like(session=0.099).join()
    await s1.like(session=1800.001).join(5)
    await s1.like(session=0.0, id="").join()
    await m1.like(session=0.05, protocols={}).join(3)
    await m1.heartbeat()


@scenario("limits")
async def size_of_an_empty_group(g: Group) -> None:
    """The first members to join get the places, even before those with earlier ids."""
    members = [g.member(f"m{number}") for number in range(1, 7)]
    for member in members:
        await member.enlist()
    await members[5].join()
    for member in members[:4]:
        await member.join().park()
    await members[4].join(3)
    await g.describe()


@scenario("limits")
async def size_counts_those_who_have_joined_again(g: Group) -> None:
    """While preparing, newcomers may take the places of members that are late."""
    members = [g.member(f"m{number}") for number in range(1, 4)]
    await g.form(*members)
    s4, m5 = g.member("s4", instance="i4"), g.member("m5")
    fourth = await s4.join().park()
    await m5.join()
    fifth = await m5.join().park()
    await members[0].join().park()
    await members[1].join().park()
    await members[2].join()
    await g.describe()
    await g.leave(members[0], members[1], m5)
    await fifth.answer()
    await fourth.answer()


@scenario("limits")
async def full_group_continues(g: Group) -> None:
    """Members of a full group commit, send heartbeats, join again and change as before."""
    members = [g.member(f"m{number}") for number in range(1, 5)]
    await g.form(*members)
    await members[1].commit({"t1-0": 1})
    await g.member("m5").join()
    members[1].protocols = {"range": "t1,t2"}
    join = await members[1].join().park()
    await members[2].heartbeat()
    others = [await member.join().park() for member in members[2:]]
    await members[0].join()
    await join.answer()
    for other in others:
        await other.answer()


# Administration


@scenario("administration")
async def every_version_of_administration(g: Group) -> None:
    """Describe, list and delete of a group with a static and a dynamic member."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2)
    for version in range(7):
        await g.describe(version=version)
        await g.sibling("absent").describe(version=version)
    for version in range(6):
        await g.list_groups(version)
    for version in range(3):
        await g.delete(g.sibling("absent"), version=version)


@scenario("administration")
async def description_of_a_group_that_waits_for_a_member(g: Group) -> None:
    """Pending ids are not members: a group that has only those is Empty."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.join()
    await g.describe()
    await g.list_groups()
    await m1.join()
    await m2.join()
    await g.describe()
    await g.list_groups()


@scenario("administration")
async def description_keeps_the_old_client(g: Group) -> None:
    """A restarted static member is described with the client id of its first join."""
    s1 = g.member("s1", instance="i1")
    await g.form(s1)
    again = g.member("again", instance="i1")
    await again.join()
    await again.sync()
    await g.describe()
    await again.join()
    await g.describe()


@scenario("administration")
async def description_of_odd_metadata(g: Group) -> None:
    """Bytes that are not a subscription are returned unchanged."""
    m1 = g.member("m1", protocols={"range": b"??"})
    await g.form(m1)
    await g.describe()
    await g.delete_offsets("t1-0", "t2-0")


@scenario("administration")
async def several_groups_are_described(g: Group) -> None:
    """Each group has its own state or error; a group named twice is described twice."""
    h, k = g.sibling("h"), g.sibling("k")
    await g.form(g.member("m1"))
    await h.member("consumer").commit({"t1-0": 1})
    await g.describe(h, k)
    await g.describe(h, k, g, version=5)


@scenario("administration")
async def lists_with_filters(g: Group) -> None:
    """States and types match in any case; unknown names match nothing."""
    h, k = g.sibling("h"), g.sibling("k")
    m1, m2 = g.member("m1"), h.member("m2")
    await g.form(m1)
    await h.form(m2, synced=False)
    await k.member("consumer").commit({"t1-0": 1})
    for states in (
        ["Stable"],
        ["completingrebalance", "EMPTY"],
        ["PreparingRebalance"],
        ["Dead"],
        ["nonsense"],
        ["Stable", "nonsense"],
    ):
        await g.list_groups(4, states=states)
        await g.list_groups(5, states=states, kinds=["Classic"])
    for kinds in (["CLASSIC"], ["consumer"], ["share"], ["nonsense"], ["consumer", "classic"]):
        await g.list_groups(5, kinds=kinds)


@scenario("administration")
async def list_of_another_protocol_type(g: Group) -> None:
    """The listed type is that of the group's members, or of its last members."""
    h, k = g.sibling("h"), g.sibling("k")
    w = h.member("w", protocol_type="connect", protocols={"eager": b"x"})
    await h.form(w)
    await k.member("m", protocol_type="x", protocols={"y": b"z"}).join(3)
    await g.member("consumer").commit({"t1-0": 1})
    await g.list_groups(0)
    await w.leave()
    await h.state("Empty")
    await g.list_groups()


@scenario("administration")
async def several_groups_are_deleted(g: Group) -> None:
    """Each group that may be deleted is deleted, whatever happens to the others."""
    h, k = g.sibling("h"), g.sibling("k")
    await g.form(g.member("m1"))
    await h.member("consumer").commit({"t1-0": 1})
    await g.delete(h, k)
    await g.describe(h, k)
    await h.delete(k, version=0)


@scenario("administration")
async def group_is_deleted_in_no_other_state(g: Group) -> None:
    """68 while it has members (completing, stable, preparing); a pending id is no obstacle."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, synced=False)
    await g.delete()
    await m1.sync({m1: "a1"})
    await g.delete(version=1)
    await m2.enlist()
    join = await m2.join().park()
    await g.delete()
    await g.leave(m1, m2)
    await join.answer()
    await m1.like(id="").join()
    await g.state("Empty")
    await g.delete()
    await g.describe()


@scenario("administration")
async def deleted_group_starts_again(g: Group) -> None:
    """Generations start at one again, and old ids are unknown."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    await g.leave(m1, m2)
    await g.state("Empty")
    await g.delete()
    await m1.join()
    await m2.heartbeat()
    m3 = g.member("m3")
    await m3.enlist()
    await m3.join()


@scenario("administration")
async def offsets_of_an_absent_and_of_a_simple_group(g: Group) -> None:
    """69 without a group; without members all offsets can be deleted, unknown ones too."""
    await g.delete_offsets("t1-0")
    await g.member("consumer").commit({"t1-0": 1, "t1-1": 2, "t2-0": 3})
    await g.delete_offsets("t1-0", "t1-2", "t1-9", "nowhere-0")
    await g.fetch(everything=True)
    await g.delete_offsets("t1-1", "t2-0")
    await g.fetch(everything=True)
    await g.describe()


@scenario("administration")
async def offsets_in_every_state(g: Group) -> None:
    """The subscriptions of the last completed join protect offsets, even if members left since."""
    m1 = g.member("m1", protocols={"range": "t1"})
    m2 = g.member("m2", protocols={"range": "t2"})
    await m1.enlist()
    await g.delete_offsets("t1-0")
    await m1.join()
    await g.delete_offsets("t1-0", "t2-0")
    await m1.sync({m1: "a1"})
    await m2.enlist()
    join = await m2.join().park()
    await g.delete_offsets("t1-0", "t2-0")
    await m1.join()
    await join.answer()
    await g.delete_offsets("t1-0", "t2-0")
    await m2.leave()
    await g.delete_offsets("t1-0", "t2-0")
    await m1.join()
    await g.delete_offsets("t1-0", "t2-0")


@scenario("administration")
async def offsets_of_a_group_of_another_type(g: Group) -> None:
    """Its members' topics are unknown, so all offsets stay while there are members."""
    w = g.member("w", protocol_type="connect", protocols={"eager": b"x"})
    await g.form(w)
    await w.commit({"t1-0": 1})
    await g.delete_offsets("t1-0", "nowhere-1")
    await w.leave()
    await g.state("Empty")
    await g.delete_offsets("t1-0", "nowhere-1")
    await g.fetch(everything=True)
