"""Scenarios of offsets committed in transactions (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.conformance.clients import Member, Producer
from tests.conformance.driver import Group, scenario
from tests.conformance.scenarios_offsets import claims


async def commit_as_each(
    g: Group, producer: Producer, members: Iterable[Member], more: Mapping[str, int] | None = None
) -> None:
    """A transaction in which each of them commits another offset of t1-0, and ``more``."""
    await producer.begin(g)
    for number, one in enumerate(members):
        await producer.commit(one, {"t1-0": number, **(more or {})})
    await producer.end(g, "t1-0", committed=True)
    await g.fetch(everything=True)


@scenario("transactional commit")
async def claims_in_a_transaction(g: Group) -> None:
    """Members of a stable group may commit; anonymous commits are accepted for old producers."""
    s1, m2, producer = g.member("s1", instance="i1"), g.member("m2"), g.producer("p1")
    await g.form(s1, m2)
    await commit_as_each(g, producer, claims(s1, m2), more={"nowhere-0": 1})


@scenario("transactional commit")
async def claims_in_a_transaction_while_preparing(g: Group) -> None:
    """As in a stable group."""
    s1, m2, producer = g.member("s1", instance="i1"), g.member("m2"), g.producer("p1")
    await g.form(s1, m2)
    await s1.join().park()
    await commit_as_each(g, producer, claims(s1, m2))


@scenario("transactional commit")
async def claims_in_a_transaction_while_completing(g: Group) -> None:
    """Unlike a plain commit, one in a transaction is accepted before the assignment is known."""
    s1, m2, producer = g.member("s1", instance="i1"), g.member("m2"), g.producer("p1")
    await g.form(s1, m2, synced=False)
    await commit_as_each(g, producer, claims(s1, m2))


@scenario("transactional commit")
async def claims_in_a_transaction_of_an_emptied_group(g: Group) -> None:
    """Without members every commit without a generation is accepted."""
    s1, m2, producer = g.member("s1", instance="i1"), g.member("m2"), g.producer("p1")
    await g.form(s1, m2)
    await g.leave(s1, m2)
    await g.state("Empty")
    await commit_as_each(g, producer, claims(s1, m2))


@scenario("transactional commit")
async def every_version_of_a_transactional_commit(g: Group) -> None:
    """Versions 0 to 3; too long metadata is refused for its partition alone."""
    m1, producer = g.member("m1"), g.producer("p1")
    await g.form(m1)
    await producer.begin(g)
    for version in range(4):
        await producer.commit(m1, {"t1-0": version, "t1-1": (version, "x" * 5000)}, version)
        await g.fetch("t1-0", "t1-1", stable=True)
    await producer.end(g, "t1-0", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)


@scenario("transactional commit")
async def absent_group_in_a_transaction(g: Group) -> None:
    """With a generation the commit is refused; without one it creates the group."""
    producer, ghost = g.producer("p1"), g.member("ghost", id="ghost", generation=5)
    await producer.begin(g)
    await producer.commit(ghost, {"t1-0": 1})
    await g.describe()
    await producer.commit(ghost, {"t1-0": 5}, version=2)
    await g.describe()
    await g.fetch(everything=True)
    await g.fetch(everything=True, stable=True)
    await g.fetch("t1-0", "t1-1", stable=True)
    await producer.end(g, "t1-0", committed=True)
    await g.fetch("t1-0", stable=True)


@scenario("transactional commit")
async def aborted_transaction_leaves_nothing(g: Group) -> None:
    """The offsets from before are visible again, and stable."""
    m1, producer = g.member("m1"), g.producer("p1")
    await g.form(m1)
    await m1.commit({"t1-0": 9, "t1-1": (8, "old")})
    await producer.begin(g)
    await producer.commit(m1, {"t1-0": 10, "t1-2": 7})
    await g.fetch(everything=True)
    await g.fetch(everything=True, stable=True)
    await producer.end(g, "t1-0", "t1-2", committed=False)
    await g.fetch("t1-0", "t1-1", "t1-2", stable=True)


@scenario("transactional commit")
async def aborted_transaction_of_a_group_of_its_own(g: Group) -> None:
    """A group that only a transaction created exists without offsets after an abort."""
    producer = g.producer("p1")
    await producer.begin(g)
    await producer.commit(g.member("consumer"), {"t1-0": 10})
    await g.state("Empty")
    await producer.end(g, "t1-0", committed=False)
    await g.fetch(everything=True)
    await g.fetch("t1-0", stable=True)


@scenario("transactional commit")
async def plain_commit_during_a_transaction(g: Group) -> None:
    """When the transaction ends, the commit that was written later counts."""
    consumer, producer = g.member("consumer"), g.producer("p1")
    await producer.begin(g)
    await producer.commit(consumer, {"t1-0": 5, "t1-1": 6})
    await consumer.commit({"t1-0": 9})
    await g.fetch("t1-0", "t1-1")
    await g.fetch("t1-0", "t1-1", stable=True)
    await producer.end(g, "t1-0", "t1-1", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)


@scenario("transactional commit")
async def two_producers_at_once(g: Group) -> None:
    """A partition is unstable until the last transaction that has it ends."""
    first, second, consumer = g.producer("p1"), g.producer("p2"), g.member("consumer")
    await first.begin(g)
    await second.begin(g)
    await first.commit(consumer, {"t1-0": 1})
    await second.commit(consumer, {"t1-0": 2, "t1-1": 3})
    await g.fetch("t1-0", "t1-1", stable=True)
    await second.end(g, "t1-1", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)
    await g.fetch(everything=True, stable=True)
    await first.end(g, "t1-0", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)


@scenario("transactional commit")
async def one_commit_after_the_other(g: Group) -> None:
    """The last commit of a transaction counts; the next transaction starts without it."""
    consumer, producer = g.member("consumer"), g.producer("p1")
    await producer.begin(g)
    await producer.commit(consumer, {"t1-0": 1, "t1-1": 1})
    await producer.commit(consumer, {"t1-0": 2})
    await producer.end(g, "t1-0", "t1-1", committed=True)
    await g.fetch(everything=True)
    await producer.begin(g)
    await producer.commit(consumer, {"t1-1": 3})
    await producer.end(g, "t1-1", committed=False)
    await g.fetch(everything=True)


@scenario("transactional commit")
async def generation_moves_on_in_a_transaction(g: Group) -> None:
    """A member that was left behind cannot commit; its earlier commits still count."""
    m1, m2, producer = g.member("m1"), g.member("m2"), g.producer("p1")
    await g.form(m1)
    await producer.begin(g)
    await producer.commit(m1, {"t1-0": 5})
    await m2.enlist()
    join = await m2.join().park()
    await producer.commit(m1, {"t1-0": 6})
    await m1.leave()
    await join.answer()
    await producer.commit(m1, {"t1-0": 7})
    await producer.commit(m2, {"t1-1": 8})
    await m2.sync({m2: "a2"})
    await g.fetch("t1-0", stable=True)
    await producer.end(g, "t1-0", "t1-1", committed=True)
    await g.fetch("t1-0", "t1-1", stable=True)


@scenario("transactional commit")
async def deleted_group_in_a_transaction(g: Group) -> None:
    """Deleting the group deletes its pending offsets too; the marker finds none."""
    consumer, producer = g.member("consumer"), g.producer("p1")
    await consumer.commit({"t1-0": 9})
    await producer.begin(g)
    await producer.commit(consumer, {"t1-0": 10, "t1-2": 7})
    await g.delete()
    await g.state("Dead")
    await g.fetch("t1-0", stable=True)
    await producer.end(g, "t1-0", "t1-2", committed=True)
    await g.fetch(everything=True)
    await g.describe()


@scenario("transactional commit")
async def deleted_offsets_in_a_transaction(g: Group) -> None:
    """Deleting an offset deletes the pending one too."""
    consumer, producer = g.member("consumer"), g.producer("p1")
    await consumer.commit({"t1-0": 9, "t1-1": 8})
    await producer.begin(g)
    await producer.commit(consumer, {"t1-0": 10, "t1-2": 7})
    await g.delete_offsets("t1-0", "t1-2", "t2-0")
    await g.fetch("t1-0", "t1-1", "t1-2", stable=True)
    await producer.end(g, "t1-0", "t1-2", committed=True)
    await g.fetch(everything=True)


@scenario("transactional commit")
async def transaction_over_two_groups(g: Group) -> None:
    """One transaction may move the offsets of several groups."""
    h, producer = g.sibling("h"), g.producer("p1")
    await producer.begin(g)
    await producer.begin(h)
    await producer.commit(g.member("n1"), {"t1-0": 1})
    await producer.commit(h.member("n2"), {"t2-0": 2})
    await g.fetch_groups({g: ["t1-0"], h: ["t2-0"]}, stable=True)
    await producer.end(g, "t1-0", committed=True)
    await h.fetch("t2-0", stable=True)
    await g.fetch_groups({g: None, h: None})
