"""Scenarios of values at the edges of what the protocol can carry."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario


@scenario("limits")
async def empty_instance_id(g: Group) -> None:
    """An empty instance id is valid like any other."""
    s1, m2 = g.member("s1", instance=""), g.member("m2")
    await s1.join()
    await s1.sync({s1: "a1"})
    await s1.heartbeat()
    await s1.commit({"t1-0": 1})
    await g.describe()
    again = g.member("again", instance="")
    await again.join(6)
    await s1.heartbeat()
    await m2.like(id=again.id, instance="").heartbeat()
    await g.leave(again.like(id=""), version=4)
    await g.state("Empty")


@scenario("limits")
async def rebalance_timeout_of_nothing(g: Group) -> None:
    """With a rebalance time-out of zero, the member that begins a rebalance stays alone."""
    m1, m2 = g.member("m1", rebalance=0.0), g.member("m2", rebalance=0.0)
    await m1.enlist()
    await m1.join()
    await g.state("Empty")
    await m2.enlist()
    await m2.join()
    await g.state("Empty")
    await m2.heartbeat()


@scenario("limits")
async def negative_rebalance_timeout(g: Group) -> None:
    """A negative rebalance time-out counts as zero."""
    m1, m2 = g.member("m1", rebalance=-1.0), g.member("m2", rebalance=10.0)
    await m1.enlist()
    await m1.join()
    await g.state("Empty")
    await m2.enlist()
    await m2.join()
    await m2.sync({m2: "a2"})
    join = await m1.like(id="", instance="i1").join().park()
    await m2.join()
    await join.answer()


@scenario("limits")
async def nameless_protocols(g: Group) -> None:
    """Joins may carry a protocol without a name, without metadata, or twice."""
    m1 = g.member("m1", protocols={"": b""})
    await m1.enlist()
    await m1.join()
    await m1.sync({m1: ""})
    await g.describe()
    await g.delete_offsets("t1-0")
    join = await g.member("m2", protocols={"": b"x", "y": b"z"}).join(3).park()
    await m1.join(4)
    await join.answer()


@scenario("limits")
async def protocol_types_of_joins(g: Group) -> None:
    """The first member's type becomes the group's; an empty type does not count as one."""
    await g.member("m1", protocol_type="").join(0)
    await g.member("m1", protocol_type="", protocols={}).join(5)
    await g.member("s1", protocol_type="", instance="i1").join()
    await g.describe()
    m2 = g.member("m2", protocol_type="x", protocols={"y": b"z"})
    await m2.join(3)
    await g.describe()
    await g.member("m3", protocol_type="", protocols={"y": b"z"}).join(3)
    await g.member("m3", protocol_type="x", protocols={"range": "t1"}).join(3)
    await m2.like(protocol_type="consumer").join()


@scenario("limits")
async def odd_member_ids(g: Group) -> None:
    """Ids with characters that no broker uses are unknown like any other."""
    m1 = g.member("m1")
    await g.form(m1)
    for odd in (" ", "é", "-", "\x00"):
        ghost = m1.like(id=odd)
        await ghost.join()
        await ghost.sync()
        await ghost.heartbeat()
        await ghost.commit({"t1-0": 1})
        await ghost.leave()


@scenario("limits")
async def client_without_a_name(g: Group) -> None:
    """A member id begins with the client id, even if that is empty or contains dashes."""
    for label in ("", "a-b", "é"):
        h = g.sibling(f"h{label}")
        m1 = h.member(label, protocols={"range": b"w"})
        await m1.join(3)
        rest = m1.id.removeprefix(f"{label}-")
        g.note(f"{label}- and {len(rest)} characters")
        await h.describe()


@scenario("limits")
async def largest_generation(g: Group) -> None:
    """Generations that the group has never had are illegal, however large."""
    m1 = g.member("m1")
    await g.form(m1)
    for generation in (2**31 - 1, -(2**31), -2, 0):
        odd = m1.like(generation=generation)
        await odd.heartbeat()
        await odd.sync()
        await odd.commit({"t1-0": 1})
        await g.member("consumer", generation=generation).commit({"t1-0": 2})
    await g.fetch("t1-0")


@scenario("offset commit")
async def partitions_named_twice(g: Group) -> None:
    """A partition is answered as often as it is named; its commits apply in their order."""
    consumer = g.member("consumer")
    await consumer.commit({"t1-0": 1})
    await g.fetch("t1-0", "t1-0", "t1-1")
    await g.fetch("t1-0", "t1-0", version=5)
    await g.delete_offsets("t1-1", "t1-1", "t1-0")
    await g.fetch(everything=True)
    await consumer.commit({"t1-0": 1, "t1-00": 2})
    await g.fetch("t1-0")


@scenario("offset commit")
async def commit_of_nothing(g: Group) -> None:
    """A request without topics gets an answer without topics, from any sender."""
    m1 = g.member("m1")
    await g.member("consumer").commit({})
    await g.describe()
    await g.form(m1)
    await m1.like(generation=9).commit({})
    await m1.commit({}, 5)
    await g.fetch(version=5)
    await g.fetch()
    await g.delete_offsets()


@scenario("offset commit")
async def partitions_below_nothing(g: Group) -> None:
    """Negative partitions are unknown to a commit and a delete, and have no offset."""
    consumer = g.member("consumer")
    await consumer.commit({"t1--1": 1, "t1-0": 2})
    await g.fetch("t1--1", "t1-0", version=6)
    await g.delete_offsets("t1--1", "t1-0")
    await g.fetch(everything=True)


@scenario("administration")
async def groups_with_odd_names(g: Group) -> None:
    """Any text names a group: white space, slashes, characters beyond ASCII."""
    for name in (" ", "a/b", "grüße", "x" * 200, "."):
        h = g.sibling(f"h{len(name)}", group_id=f"{g.id}{name}")
        await h.form(h.member("m1"))
        await h.describe(version=5)
        await h.delete()
        await h.leave(h.member("m1", id="x"))


@scenario("administration")
async def one_group_named_twice(g: Group) -> None:
    """Describe, delete and fetch handle a group as often as it is named."""
    consumer = g.member("consumer")
    await consumer.commit({"t1-0": 1})
    same = g.sibling("g", group_id=g.id)
    await g.describe(same)
    await g.fetch_groups({g: ["t1-0"], same: None})
    await g.delete(same)


@scenario("administration")
async def administration_of_nothing(g: Group) -> None:
    """Requests that name no group, and a leave that names no member."""
    await g.fetch_groups({})
    await g.fetch_groups({}, 8, stable=True)
    await g.leave(version=3)
    await g.form(g.member("m1"))
    await g.leave(version=3)
    await g.list_groups(5, states=["", " "], kinds=[""])
    await g.list_groups(4, states=[" Stable", "stable "])
    await g.list_groups(5, kinds=[" classic"])
