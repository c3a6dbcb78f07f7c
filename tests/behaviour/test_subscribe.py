"""Members that change their subscription under load, on both brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kgroup.events import Left
from kgroup.types import Cause
from tests.behaviour.harness import Harness, Member, SteadyProducer, harness
from tests.brokers import Kafka

PARTITIONS = 4


async def until(here: Harness, condition: Callable[[], bool], what: str) -> None:
    """Wait until members own what they should."""
    await here.processed.until(condition, what)


async def all_once(here: Harness, produced: int) -> None:
    """Wait until every record was processed, and check that none was twice."""
    everything = set(map(str, range(produced)))
    await until(here, lambda: everything.issubset(here.processed.values()), "records are missing")
    assert not here.processed.repeated()


def had(member: Member, cause: Cause) -> bool:
    """Whether a generation of the member ended with this cause."""
    return any(one.end is not None and one.end.cause is cause for one in member.generations)


@pytest.mark.parametrize("instance", [None, "one"])
async def test_a_member_that_unsubscribes_and_comes_back(
    kafka: Kafka, instance: str | None
) -> None:
    """The other reads everything meanwhile; nothing is lost or processed twice."""
    async with harness(kafka) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=200)
        producer.start()
        one = here.start("one", group_instance_id=instance)
        two = here.start("two")
        for _ in range(2):
            await until(here, lambda: (one.owned(), two.owned()) == (2, 2), "not shared")
            one.group.unsubscribe()
            await until(here, lambda: two.owned() == PARTITIONS, "not given to the other")
            assert one.owned() == -1
            one.group.subscribe([here.topic])
        await until(here, lambda: (one.owned(), two.owned()) == (2, 2), "not shared again")
        await all_once(here, await producer.stop())
        assert had(one, Cause.SUBSCRIPTION_CHANGED)
        assert all(left.notified for left in one.events_of(Left))


async def test_topics_are_added_and_given_up(kafka: Kafka) -> None:
    """One member of two reads another topic for a while; nothing is lost or processed twice."""
    async with harness(kafka) as here:
        await here.create(PARTITIONS)
        other = Harness(kafka, here.nursery)
        await other.create()
        producer = SteadyProducer(here, PARTITIONS, per_second=200)
        producer.start()
        one, two = here.start("one"), here.start("two")
        await until(here, lambda: (one.owned(), two.owned()) == (2, 2), "not shared")
        one.group.subscribe([here.topic, other.topic])
        await other.produce(["other"])
        await until(here, lambda: "other" in here.processed.values(), "the new topic is not read")
        one.group.subscribe([other.topic])
        mine = [other.partition(0)]
        await until(here, lambda: one.settled(*mine), "it has not given up the first topic")
        await until(here, lambda: two.owned() == PARTITIONS, "the other has not taken it")
        one.group.subscribe([here.topic])
        await until(here, lambda: (one.owned(), two.owned()) == (2, 2), "not shared again")
        await all_once(here, await producer.stop())
