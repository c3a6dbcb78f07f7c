"""Scenarios of member ids and joins: every version, every state, what is said twice."""

from __future__ import annotations

from tests.conformance.driver import Group, scenario

# Member ids (KIP-394)


@scenario("member id")
async def id_is_given_again_to_who_asks_again(g: Group) -> None:
    """Each join without an id gets a new id; all of these ids stay valid."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.join()
    await m2.join()
    again = m1.like(id="")
    await again.join()
    await m1.join()
    join = await m2.join().park()
    rejoin = await m1.join().park()
    await again.leave()
    await rejoin.answer()
    await join.answer()


@scenario("member id")
async def pending_id_is_no_member(g: Group) -> None:
    """The owner of a pending id may only join and leave, in a group with or without members."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.join()
    await m1.heartbeat()
    await m1.sync()
    await m1.sync(version=4)
    await m1.commit({"t1-0": 4})
    await m1.like(generation=0).commit({"t1-0": 4})
    await g.form(m2)
    await m1.like(generation=1, protocol="range").sync()
    await m1.like(generation=1).heartbeat()
    await m1.like(generation=1).commit({"t1-0": 4})
    await m1.like(protocols={"no": "t1"}).join()
    await m1.join().park()


@scenario("member id")
async def pending_id_leaves_a_stable_group(g: Group) -> None:
    """A leave before the second join does not affect the group."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.join()
    await m2.leave()
    await m1.heartbeat()
    await m2.join()
    await m1.join()


@scenario("member id")
async def pending_id_leaves_an_empty_group(g: Group) -> None:
    """The id becomes invalid, and the group still exists."""
    m1 = g.member("m1")
    await m1.join()
    await m1.leave(1)
    await g.describe()
    await m1.join()
    await m1.leave(2)


@scenario("member id")
async def pending_id_cannot_become_static(g: Group) -> None:
    """An id that was given to a dynamic member cannot be used by a static one."""
    m1 = g.member("m1")
    await m1.join()
    await m1.like(instance="i1").join()
    await m1.join()
    await m1.like(instance="i1").join()


@scenario("member id")
async def pending_id_joins_by_an_old_version(g: Group) -> None:
    """The second join may come in a version that knows no such ids."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.join()
    await m1.join(2)
    await m2.join(4)
    join = await m2.join(0).park()
    await m1.join(1)
    await join.answer()


@scenario("member id")
async def pending_ids_do_not_count_for_the_size(g: Group) -> None:
    """Ids are given while there is room; the first members to join get the places."""
    members = [g.member(f"m{number}") for number in range(1, 7)]
    for member in members:
        await member.join()
    await members[0].join()
    for member in members[1:5]:
        await member.join().park()
    await members[5].join()
    await g.describe()


@scenario("member id")
async def join_waits_for_every_pending_id(g: Group) -> None:
    """The join waits for every pending id; when the last one leaves, it completes."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1)
    await m2.join()
    await m3.join()
    rejoin = await m1.join().park()
    second = await m2.join().park()
    await g.state("PreparingRebalance")
    await m3.leave()
    await rejoin.answer()
    await second.answer()


@scenario("member id")
async def id_asked_for_while_preparing_is_waited_for(g: Group) -> None:
    """A rebalance waits for an id that was given during it."""
    m1, m2, m3 = g.member("m1"), g.member("m2"), g.member("m3")
    await g.form(m1)
    await m2.enlist()
    newcomer = await m2.join().park()
    await m3.join()
    rejoin = await m1.join().park()
    third = await m3.join().park()
    await rejoin.answer()
    await newcomer.answer()
    await third.answer()


@scenario("member id")
async def pending_id_survives_the_generation_it_was_given_in(g: Group) -> None:
    """A pending id stays valid for a join in later generations."""
    m1, m2 = g.member("m1", rebalance=0.5), g.member("m2")
    await g.form(m1)
    await m2.join()
    await m1.join().answer(near=0.5)
    await m1.sync({m1: "a1"})
    await m2.heartbeat()
    join = await m2.join().park()
    await m1.join()
    await join.answer()


# JoinGroup


@scenario("join")
async def every_version_of_a_join(g: Group) -> None:
    """Versions 0 to 9: which of them need an id first, echoed fields, and refusals."""
    for version in range(10):
        h = g.sibling(f"h{version}")
        m1 = h.member("m1")
        await m1.join(version)
        await m1.join(version)
        await m1.like(protocols={"no": "t1"}).join(version)
        await m1.like(id="ghost").join(version)
        await m1.like(session=0.01).join(version)
        await m1.like(protocols={"range": "t1,t2"}).join(version)


@scenario("join")
async def every_version_of_a_static_join(g: Group) -> None:
    """Versions 5 to 9: a newcomer, and a restart while the group is preparing."""
    for version in range(5, 10):
        h = g.sibling(f"h{version}")
        m1, s1 = h.member("m1"), h.member("s1", instance="i1")
        await h.form(m1)
        join = await s1.join(version).park()
        restarted = await h.member("again", instance="i1").join(version).park()
        await join.answer()
        await m1.join(version)
        await restarted.answer()


@scenario("join")
async def join_echoes_the_id_with_some_errors(g: Group) -> None:
    """An unknown and a fenced id are echoed, so is one whose protocols do not fit."""
    m1, s1 = g.member("m1"), g.member("s1", instance="i1")
    await g.form(m1, s1)
    await m1.like(instance="i1").join()
    await m1.like(instance="i9").join()
    await m1.like(id="ghost", instance="i1").join()
    await m1.like(id="ghost", instance="i9").join()
    await m1.like(protocols={"no": "t1"}).join()
    await m1.like(id="ghost", protocols={"no": "t1"}).join()
    await m1.like(session=0.001).join()


@scenario("join")
async def faults_of_a_join_in_their_order(g: Group) -> None:
    """The session comes before the size, the size before the protocol, that before the member."""
    members = [g.member(f"m{number}") for number in range(1, 5)]
    await g.form(*members)
    odd = g.member("odd", id="ghost", session=0.01, protocols={"no": "t1"})
    await odd.join()
    await odd.like(session=60.0).join()
    await members[3].leave()
    await odd.like(session=60.0).join()
    await odd.like(session=60.0, protocols={"range": "t1"}).join()
    await odd.like(session=60.0, protocols={"range": "t1"}, instance="i9").join()
    await odd.like(session=60.0, protocols={}, id="").join()


@scenario("join")
async def join_repeated_in_every_state(g: Group) -> None:
    """An unchanged follower's join is parked while preparing, and answered at once otherwise."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    rejoin = await m1.join().park()
    waiting = await m1.join().park()
    await m2.join()
    await waiting.answer()
    await rejoin.abandoned()
    await m2.join()
    await m1.sync({m1: "a1", m2: "a2"})
    await m2.join()
    await m2.join(3)
    await g.state("Stable")


@scenario("join")
async def join_repeated_with_another_connection_closed(g: Group) -> None:
    """A client that closed its connection is still counted; its next copy replaces the old one."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    join = await m2.join().park()
    join.hang_up()
    await g.state("PreparingRebalance")
    again = await m2.join().park()
    await m1.join()
    await again.answer()


@scenario("join")
async def join_whose_client_hung_up_is_counted(g: Group) -> None:
    """The join completes with such a member, which may continue as if it had the answer."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1)
    await m2.enlist()
    join = await m2.join().park()
    join.hang_up()
    await g.describe()
    await m1.join()
    await m2.join()
    await m2.heartbeat()


@scenario("join")
async def old_client_that_hung_up_leaves_a_stranger(g: Group) -> None:
    """Before v4, a client that joins again without an id becomes an additional member."""
    m1, m2 = g.member("m1", rebalance=1.0), g.member("m2", rebalance=1.0)
    await g.form(m1)
    join = await m2.join(3).park()
    join.hang_up()
    again = await m2.join(3).park()
    await m1.join()
    await again.answer()


@scenario("join")
async def reordered_protocols_are_changed_metadata(g: Group) -> None:
    """Another order of preference is enough for a rebalance, in Completing and in Stable."""
    both = {"range": "t1", "roundrobin": "t1"}
    m1, m2 = g.member("m1", protocols=both), g.member("m2", protocols=both)
    await g.form(m1, m2, synced=False)
    m2.protocols = dict(reversed(both.items()))
    join = await m2.join().park()
    await m1.heartbeat()
    await m1.join()
    await join.answer()


@scenario("join")
async def follower_that_drops_a_protocol_changes_the_vote(g: Group) -> None:
    """What all members still support is elected; the protocol of the generation changes."""
    both = {"range": "t1", "roundrobin": "t1"}
    m1, m2 = g.member("m1", protocols=both), g.member("m2", protocols=both)
    await g.form(m1, m2)
    m2.protocols = {"roundrobin": "t1"}
    join = await m2.join().park()
    await m1.join()
    await join.answer()
    await m1.sync({m1: "a1", m2: "a2"})
    await m1.like(protocol="range").sync()
    await g.describe()


@scenario("join")
async def member_cannot_leave_the_common_protocols(g: Group) -> None:
    """Even a sole member must keep one of the currently supported protocols."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.like(protocols={"sticky": "t1"}).join()
    await m1.like(protocols={"sticky": "t1", "range": "t1"}).join()
    await m1.like(protocols={"sticky": "t1"}).join()


@scenario("join")
async def ties_in_the_vote(g: Group) -> None:
    """With equal votes, the order of Java's hash map decides, not the order of joining."""
    # Only names of different slots: within one, Kafka's answer is random.
    names = ["range", "roundrobin", "sticky", "cooperative-sticky", "custom", "a"]
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            h = g.sibling(f"{first}/{second}")
            m1 = h.member("m1", protocols={first: "t1", second: "t1"})
            m2 = h.member("m2", protocols={second: "t1", first: "t1"})
            await h.form(m1, m2)
            await h.describe(version=5)


@scenario("join")
async def vote_among_what_is_common(g: Group) -> None:
    """A vote for a protocol that others lack passes to the next one in the member's list."""
    m1 = g.member("m1", protocols={"sticky": "t1", "roundrobin": "t1", "range": "t1"})
    m2 = g.member("m2", protocols={"range": "t1", "roundrobin": "t1"})
    m3 = g.member("m3", protocols={"roundrobin": "t1", "range": "t1"})
    await g.form(m1, m2, m3)
    await g.describe()


@scenario("join")
async def rolling_change_of_protocol(g: Group) -> None:
    """Two restarts of each member lead from one assignor to another, as KIP-429 describes."""
    m1, m2 = g.member("m1"), g.member("m2")
    await g.form(m1, m2)
    m1.protocols = m2.protocols = {"cooperative-sticky": "t1", "range": "t1"}
    join = await m1.join().park()
    await m2.join()
    await join.answer()
    m1.protocols = m2.protocols = {"cooperative-sticky": "t1"}
    await m1.sync({m1: "a1"})
    join = await m1.join().park()
    await m2.join()
    await join.answer()
    await g.member("m3").join()


@scenario("join")
async def workers_of_connect_are_a_group_too(g: Group) -> None:
    """Another protocol type works too; only the leader reads its metadata."""
    w1 = g.member("w1", protocol_type="connect", protocols={"eager": b"x"})
    w2 = g.member("w2", protocol_type="connect", protocols={"eager": b"y", "compatible": b"z"})
    await g.form(w1, w2)
    await g.describe()
    await g.list_groups()
    await g.member("c").join()
    await w1.leave()
    await w2.leave()
    await g.state("Empty")
    await g.list_groups()
    c = g.member("c")
    await c.enlist()
    await c.join()
    await g.describe()


@scenario("join")
async def emptied_group_takes_another_protocol(g: Group) -> None:
    """A group without members keeps only its generation number."""
    m1 = g.member("m1")
    await g.form(m1)
    await m1.leave()
    await g.state("Empty")
    m2 = g.member("m2", protocols={"sticky": "t2"})
    await m2.enlist()
    await m2.join()
    await m2.sync({m2: "a2"})
    await g.describe()


@scenario("join")
async def join_reason_changes_nothing(g: Group) -> None:
    """A reason (KIP-800) only appears in the broker's log."""
    m1, m2 = g.member("m1"), g.member("m2")
    await m1.join(8, reason="first")
    await m1.join(9, reason="second")
    await m1.sync({m1: "a1"})
    await m2.enlist()
    join = await m2.join(8, reason="because").park()
    await m1.leave(reason="enough")
    await join.answer()
