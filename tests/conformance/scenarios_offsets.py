"""Scenarios of offset commits and fetches."""

from __future__ import annotations

from tests.conformance.clients import Member
from tests.conformance.driver import Group, scenario


def claims(static: Member, dynamic: Member) -> tuple[Member, ...]:
    """Clients that claim to be one of two members, rightly and wrongly."""
    return (
        static,
        dynamic,
        static.like(instance=None),
        static.like(generation=static.generation - 1),
        static.like(generation=-1),
        dynamic.like(generation=-1),
        dynamic.like(id=""),
        dynamic.like(id="ghost", generation=9),
        dynamic.like(id="ghost", generation=-1),
        dynamic.like(id="ghost", instance="i1"),
        dynamic.like(instance="i9"),
        dynamic.like(instance="i1"),
        dynamic.like(id="", instance="i9", generation=-1),
        dynamic.like(id="", instance="i1", generation=-1),
        dynamic.like(id="", generation=-1),
    )


@scenario("offset commit")
async def claims_of_a_stable_group(g: Group) -> None:
    """Instance, member id and generation decide who may commit; unknown partitions get 3 anyway."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2)
    for number, one in enumerate(claims(s1, m2)):
        await one.commit({"t1-0": number, "nowhere-0": 1, "t1-7": 1})
    await g.fetch(everything=True)


@scenario("offset commit")
async def claims_while_preparing(g: Group) -> None:
    """While joins are parked, commits of the old generation are still accepted."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2)
    await s1.join().park()
    for number, one in enumerate(claims(s1, m2)):
        await one.commit({"t1-0": number})
    await g.fetch(everything=True)


@scenario("offset commit")
async def claims_while_completing(g: Group) -> None:
    """Until the assignment is known, valid members have to wait; others get their own errors."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2, synced=False)
    for number, one in enumerate(claims(s1, m2)):
        await one.commit({"t1-0": number, "nowhere-0": 1})
    await g.fetch(everything=True)


@scenario("offset commit")
async def claims_of_an_emptied_group(g: Group) -> None:
    """Commits without a generation are accepted; with one, the member is unknown."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    await g.form(s1, m2)
    await g.leave(s1, m2)
    await g.state("Empty")
    for number, one in enumerate(claims(s1, m2)):
        await one.commit({"t1-0": number})
    await g.fetch(everything=True)


@scenario("offset commit")
async def commits_of_an_old_client(g: Group) -> None:
    """Versions 2 to 8 to a group that is not there, one without members, and one with."""
    for version in range(2, 10):
        h = g.sibling(f"h{version}")
        await h.member("m", id="m", generation=0).commit({"t1-0": 1}, version)
        await h.member("n", id="n").commit({"t1-0": 2}, version)
        await h.member("m", generation=0).commit({"t1-0": 3}, version)
        await h.form(h.member("m1"))
        await h.member("m", id="m", generation=1).commit({"t1-0": 4}, version)
        await h.member("n").commit({"t1-0": 5}, version)
        await h.fetch("t1-0", version=5)


@scenario("offset commit")
async def newcomer_commits_while_preparing(g: Group) -> None:
    """A member before its first completed join has no generation, but may name the old one."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1, m2)
    await m3.enlist()
    await m3.join().park()
    await m1.commit({"t1-0": 4})
    await m3.commit({"t1-0": 5})
    await m3.like(generation=2).commit({"t1-0": 6})
    await m1.like(generation=3).commit({"t1-0": 7})
    await g.fetch("t1-0")


@scenario("offset commit")
async def simple_consumer_with_names(g: Group) -> None:
    """A commit without a generation to a group without members may carry any names."""
    consumer = g.member("consumer")
    await consumer.commit({"t1-0": 0})
    await consumer.like(id="x").commit({"t1-0": 10})
    await consumer.like(instance="x").commit({"t1-1": 11})
    await consumer.like(id="x", instance="y").commit({"t1-2": 12})
    await consumer.like(generation=0).commit({"t1-0": 13})
    await consumer.like(generation=-5).commit({"t2-0": 14})
    await g.fetch(everything=True)
    await g.describe()


@scenario("offset commit")
async def odd_offsets_and_epochs(g: Group) -> None:
    """Offsets are stored unchanged, negative ones too; a valid epoch is returned."""
    consumer = g.member("consumer")
    await consumer.commit({"t1-0": 0, "t1-1": -1, "t1-2": -5, "t2-0": 2**62})
    await g.fetch(everything=True)
    for epoch in (-1, 0, 5, 3):
        await consumer.commit({"t1-0": 9}, epoch=epoch)
        await g.fetch("t1-0", version=5)
    await consumer.commit({"t1-0": 9})
    await g.fetch("t1-0")
    await g.fetch("t1-0", version=4)


@scenario("offset commit")
async def unknown_partitions(g: Group) -> None:
    """A commit of unknown partitions only creates no group; known ones beside them are accepted."""
    consumer = g.member("consumer")
    await consumer.commit({"nowhere-0": 10})
    await g.describe()
    await consumer.commit({"t1-3": 1, "t2-2": 2})
    await g.describe()
    await consumer.commit({"t1-3": 1, "t1-2": 2, "nowhere-1": 3})
    await g.fetch(everything=True)
    await g.member("m", id="m", generation=4).commit({"nowhere-0": 1, "t1-0": 1})


@scenario("offset commit")
async def metadata_at_its_limit(g: Group) -> None:
    """The limit holds for each partition: empty, the longest, one more, and multi-byte text."""
    consumer = g.member("consumer")
    await consumer.commit({"t1-0": (1, "x" * 4097)})
    await consumer.commit({"t1-0": (1, "x" * 4096), "t1-1": (2, "é" * 4096), "t1-2": (3, "")})
    await consumer.commit(
        {"t1-0": (4, "x" * 5000), "t2-0": (5, "ok"), "nowhere-0": (6, "y" * 5000)}
    )
    await g.fetch(everything=True)


@scenario("offset commit")
async def refused_commit_with_long_metadata(g: Group) -> None:
    """A member that may not commit gets that error first."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.like(generation=9).commit({"t1-0": (1, "x" * 5000), "nowhere-0": (1, "x" * 5000)})
    await m1.like(id="ghost").commit({"t1-0": (1, "x" * 5000)}, 8)


@scenario("offset commit")
async def commits_over_a_members_life(g: Group) -> None:
    """From the pending id to the leave: unknown, refused, waiting, accepted, accepted, unknown."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.enlist()
    await m1.commit({"t1-0": 1})
    await m1.join()
    await m1.commit({"t1-0": 2})
    await m1.sync({m1: "a1"})
    await m1.commit({"t1-0": 3})
    await m2.enlist()
    join = await m2.join().park()
    await m1.commit({"t1-0": 4})
    await m1.leave()
    await join.answer()
    await m1.commit({"t1-0": 5})
    await m1.like(generation=-1).commit({"t1-0": 6})
    await g.fetch("t1-0")


@scenario("offset commit")
async def commit_of_a_generation_that_has_passed(g: Group) -> None:
    """A past generation is illegal from the end of the next join on."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    await g.reform(m1, m2)
    await m2.like(generation=2).commit({"t1-0": 1})
    await m1.sync({m1: "a1", m2: "a2"})
    await m2.like(generation=2).commit({"t1-0": 2})
    await m2.like(generation=2).commit({"t1-0": 2}, 5)
    await m2.commit({"t1-0": 3})
    await g.fetch("t1-0")


@scenario("offset commit")
async def group_without_members_becomes_one_with(g: Group) -> None:
    """A simple consumer's group accepts members; then it refuses the simple consumer."""
    consumer, m1 = g.member("consumer"), g.member("m1")
    await consumer.commit({"t1-0": 1})
    await m1.enlist()
    await consumer.commit({"t1-0": 2})
    await m1.join()
    await consumer.commit({"t1-0": 3})
    await m1.sync({m1: "a1"})
    await consumer.commit({"t1-0": 4}, 2)
    await m1.leave()
    await g.state("Empty")
    await consumer.commit({"t1-0": 5})
    await g.fetch("t1-0")


# OffsetFetch


@scenario("offset fetch")
async def every_version_of_a_fetch(g: Group) -> None:
    """Versions 1 to 9: some, all from v2 on, of a group with and without offsets and of none."""
    m1, h = g.member("m1"), g.sibling("h")
    await g.form(m1)
    await m1.commit({"t1-0": (10, "note"), "t2-1": 20}, epoch=4)
    await h.member("m2").enlist()
    for version in range(1, 10):
        for group in (g, h, g.sibling("absent")):
            await group.fetch("t1-0", "t1-1", "t2-9", "nowhere-0", version=version)
            if version > 1:
                await group.fetch(version=version, everything=True)


@scenario("offset fetch")
async def several_groups_at_once(g: Group) -> None:
    """Each group has its own partitions, or all; groups that do not exist have none."""
    h, k = g.sibling("h"), g.sibling("k")
    await g.member("consumer").commit({"t1-0": 1})
    m1 = h.member("m1")
    await h.form(m1)
    await m1.commit({"t2-0": 4, "t1-2": (5, "meta")}, epoch=7)
    await g.fetch_groups({g: ["t1-0", "t1-1"], h: None, k: None})
    await g.fetch_groups({g: None, h: ["t2-0"], k: ["t1-0"]}, 8, stable=True)
    await g.fetch_groups({k: []}, 9)
    await g.fetch_groups({g: [], h: ["t1-2", "t2-0", "t2-1"]}, 8)


@scenario("offset fetch")
async def fetch_in_every_state(g: Group) -> None:
    """The committed offsets are returned in every state of the group."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m1.commit({"t1-0": 7})
    await m2.enlist()
    join = await m2.join().park()
    await g.fetch("t1-0", stable=True)
    await m1.join()
    await join.answer()
    await g.fetch("t1-0", version=7, stable=True)
    await g.leave(m1, m2)
    await g.state("Empty")
    await g.fetch(everything=True)


@scenario("offset fetch")
async def offsets_outlive_their_members(g: Group) -> None:
    """A group that became empty continues at its offsets."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.commit({"t1-0": 7, "t1-1": (8, "here")})
    await m1.leave()
    m2 = g.member("m2", protocols={"range": "t2"})
    await m2.enlist()
    await m2.join()
    await g.fetch(everything=True)
    await m2.sync({m2: "a2"})
    await m2.commit({"t1-1": 9})
    await g.fetch(everything=True)
