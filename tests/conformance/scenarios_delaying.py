"""Scenarios of the initial rebalance delay (KIP-134)."""

from __future__ import annotations

import trio

from tests.conformance.driver import Group, scenario


@scenario("initial delay", broker="delay")
async def every_period_with_a_newcomer_is_followed_by_another(g: Group) -> None:
    """Each of three members joins in the period that the one before has added."""
    first = g.member("s1", instance="i1").join().send()
    await trio.sleep(0.5)
    second = g.member("s2", instance="i2", rebalance=0.2).join().send()
    await trio.sleep(1.0)
    third = g.member("s3", instance="i3", rebalance=0.2).join().send()
    await first.answer(near=3.0)
    await second.answer()
    await third.answer()


@scenario("initial delay", broker="delay")
async def delay_is_capped_by_the_first_member(g: Group) -> None:
    """The first member's rebalance time-out limits the delay; later ones do not extend it."""
    first = g.member("s1", instance="i1", rebalance=1.5).join().send()
    await trio.sleep(0.5)
    second = g.member("s2", instance="i2").join().send()
    await trio.sleep(0.7)
    third = g.member("s3", instance="i3").join().send()
    await first.answer(near=1.5)
    await second.answer()
    await third.answer()


@scenario("initial delay", broker="delay")
async def impatient_first_member_leaves_one_period(g: Group) -> None:
    """If nothing is left after the first period, there is no second one."""
    first = g.member("s1", instance="i1", rebalance=0.3).join().send()
    await trio.sleep(0.3)
    second = g.member("s2", instance="i2").join().send()
    await first.answer(near=1.0)
    await second.answer()


@scenario("initial delay", broker="delay")
async def pending_ids_do_not_move_the_delay(g: Group) -> None:
    """An id does not extend the delay, and the delay does not wait for its owner."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2")
    began = g.now()
    first = await s1.join().park()
    await m2.enlist()
    await first.answer(near=1.0, since=began)
    await s1.sync({s1: "a1"})
    join = await m2.join().park()
    await s1.join()
    await join.answer()


@scenario("initial delay", broker="delay")
async def expiry_of_an_id_ends_the_delay(g: Group) -> None:
    """When a pending id expires and all members have joined, the initial delay ends early."""
    s1, m2 = g.member("s1", instance="i1"), g.member("m2", session=0.5)
    await m2.enlist()
    await s1.join().answer(near=0.5)


@scenario("initial delay", broker="delay")
async def everyone_leaves_during_the_delay(g: Group) -> None:
    """The group becomes Empty only after the delay; the next join is delayed again."""
    m1 = g.member("m1")
    await m1.enlist()
    began = g.now()
    join = await m1.join().park()
    await m1.leave()
    await join.answer()
    await g.describe()
    await g.state("Empty", near=1.0, since=began)
    await g.member("s2", instance="i2").join().answer(near=1.0)


@scenario("initial delay", broker="delay")
async def another_comes_after_everyone_left(g: Group) -> None:
    """A newcomer shares the running delay, and adds a period to it."""
    s1, s2 = g.member("s1", instance="i1"), g.member("s2", instance="i2")
    began = g.now()
    join = await s1.join().park()
    await g.leave(s1.like(id=""))
    await join.answer()
    second = await s2.join().park()
    await g.describe()
    await second.answer(near=2.0, since=began)


@scenario("initial delay", broker="delay")
async def join_repeated_during_the_delay(g: Group) -> None:
    """Only the latest copy is answered, with its own data; it adds no period."""
    m1 = g.member("m1")
    await m1.enlist()
    began = g.now()
    first = await m1.join().park()
    m1.protocols = {"range": "t1,t2"}
    again = await m1.join().park()
    await again.answer(near=1.0, since=began)
    await first.abandoned()


@scenario("initial delay", broker="delay")
async def restart_during_the_delay(g: Group) -> None:
    """A static member's new process replaces the old one and adds no period."""
    began = g.now()
    first = await g.member("s1", instance="i1").join().park()
    again = await g.member("again", instance="i1").join().park()
    await first.answer()
    await again.answer(near=1.0, since=began)


@scenario("initial delay", broker="delay")
async def group_during_the_delay(g: Group) -> None:
    """The group is preparing; requests are refused as in any group with members."""
    s1 = g.member("s1", instance="i1")
    join = await s1.join().park()
    await g.describe()
    await g.list_groups()
    await s1.like(id="x").heartbeat()
    await s1.like(instance=None).heartbeat()
    await g.delete_offsets("t1-0")
    await g.delete()
    await g.member("consumer").commit({"t1-0": 4})
    await g.member("odd", instance="i9", protocols={"no": "t1"}).join()
    await join.answer()


@scenario("initial delay", broker="delay")
async def simple_group_is_delayed_too(g: Group) -> None:
    """A group with offsets only is empty; during the delay it refuses simple commits."""
    await g.member("consumer").commit({"t1-0": 4})
    s1 = g.member("s1", instance="i1")
    join = await s1.join().park()
    await g.member("consumer").commit({"t1-0": 5})
    await s1.like(id="ghost", generation=0).commit({"t1-0": 5})
    await join.answer()
    await g.fetch("t1-0")


@scenario("initial delay", broker="delay")
async def sessions_do_not_end_during_the_delay(g: Group) -> None:
    """A new member's session begins with the first generation."""
    s1 = g.member("s1", instance="i1", session=0.4)
    began = g.now()
    await s1.join().answer(near=1.0)
    await g.state("Empty", near=1.4, since=began)


@scenario("initial delay", broker="delay")
async def protocols_during_the_delay(g: Group) -> None:
    """The group supports what all members so far support; leaving removes a member's protocols."""
    both = {"range": "t1", "roundrobin": "t1"}
    s1 = g.member("s1", instance="i1", protocols=both)
    s2 = g.member("s2", instance="i2", protocols={"roundrobin": "t1"})
    s3 = g.member("s3", instance="i3", protocols={"range": "t1"})
    first = await s1.join().park()
    second = await s2.join().park()
    await s3.join()
    await s3.like(protocol_type="other").join()
    await g.leave(s1.like(id=""), s2.like(id=""))
    third = await s3.join().park()
    await first.answer()
    await second.answer()
    await third.answer()


@scenario("initial delay", broker="delay")
async def full_group_during_the_delay(g: Group) -> None:
    """The first members to join get the places."""
    members = [g.member(f"s{number}", instance=f"i{number}") for number in range(1, 5)]
    began = g.now()
    joins = [await member.join().park() for member in members]
    await g.member("s5", instance="i5").join()
    await g.member("m6").join()
    await joins[0].answer(near=2.0, since=began)
    for join in joins[1:]:
        await join.answer()


@scenario("initial delay", broker="delay")
async def old_and_new_clients_share_the_delay(g: Group) -> None:
    """A v3 client is in at once, a v9 client with its second join; both share a generation."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m2.enlist()
    began = g.now()
    first = await m1.join(3).park()
    second = await m2.join().park()
    await first.answer(near=2.0, since=began)
    await second.answer()
