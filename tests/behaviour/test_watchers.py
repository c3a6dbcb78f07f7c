"""Topics that change under a group, on both brokers: extended, late, deleted, created again."""

from __future__ import annotations

import re

from kgroup.events import TopicsMissing
from kgroup.testing import admin
from kgroup.types import Cause, TopicPartition
from tests.behaviour.harness import Harness, harness, in_thread
from tests.brokers import Kafka, unique


async def test_added_partitions_are_read(kafka: Kafka) -> None:
    """The leader finds new partitions, all are assigned, and no record is repeated."""
    async with harness(kafka) as here:
        await here.create(2)
        for number in range(2):
            await here.produce(["a", "b"], number)
        one, two = here.start("one"), here.start("two")
        await here.processed.until(lambda: (one.owned(), two.owned()) == (1, 1), "not shared")
        await here.processed.until(lambda: len(here.processed.entries) == 4, "not read")
        leader = next(member for member in (one, two) if member.generation.leader)
        ended = leader.generation
        await in_thread(admin.add_partitions, here.bootstrap_servers, here.topic, 4)
        for number in range(4):
            await here.produce(["c"], number)
        await here.processed.until(lambda: (one.owned(), two.owned()) == (2, 2), "not shared again")
        await here.processed.until(lambda: len(here.processed.entries) == 8, "not read")
        assert not here.processed.repeated()
        assert ended.end is not None
        assert ended.end.cause is Cause.PARTITIONS_CHANGED


async def test_added_partitions_are_read_from_their_start_with_latest(kafka: Kafka) -> None:
    """With ``latest`` the first records of a partition added later are read too."""
    async with harness(kafka) as here:
        await here.create()
        one = here.start("one", auto_offset_reset="latest", partition_watch_interval=1.0)
        await here.processed.until(lambda: one.owned() == 1, "not joined")
        await in_thread(admin.add_partitions, here.bootstrap_servers, here.topic, 2)
        await here.produce(["first"], 1)
        await here.processed.until(lambda: here.processed.values() == ["first"], "skipped")


async def test_a_topic_that_is_created_later_is_read(kafka: Kafka) -> None:
    """A missing topic does not keep a group from reading the others."""
    async with harness(kafka) as here:
        other = Harness(kafka, here.nursery)
        await other.create()
        await other.produce(["here"])
        member = here.start("one", topics=[here.topic, other.topic])
        await here.processed.until(lambda: here.processed.values() == ["here"], "not read")
        await here.processed.until(lambda: member.events_of(TopicsMissing), "not reported")
        (missing,) = member.events_of(TopicsMissing)
        assert missing.topics == (here.topic,)
        await here.create(3)
        await here.produce(["late"], 2)
        await here.processed.until(lambda: here.processed.values() == ["here", "late"], "not read")
        assert member.owned() == 4


async def test_a_group_waits_for_its_only_topic(kafka: Kafka) -> None:
    """A generation without partitions ends when the topic is created."""
    async with harness(kafka) as here, here.group() as group:
        empty = await group.next()
        assert not empty.assignment
        await here.create(2)
        full = await group.next()
        assert list(full.assignment) == here.partitions(2)
        assert full.assignment.added == set(here.partitions(2))


async def test_the_partitions_of_a_deleted_topic_are_given_up(kafka: Kafka) -> None:
    """The next generation does not have them; other topics are still read."""
    async with harness(kafka) as here:
        other = Harness(kafka, here.nursery)
        await here.create(2)
        await other.create()
        await here.produce(["gone soon"])
        member = here.start("one", topics=[here.topic, other.topic])
        await here.processed.until(lambda: here.processed.values() == ["gone soon"], "not read")
        ended = member.generation
        await here.until_committed()
        await in_thread(admin.delete_topic, here.bootstrap_servers, here.topic)
        kept = TopicPartition(other.topic, 0)
        await here.processed.until(lambda: member.settled(kept), "not given up")
        assert ended.end is not None
        assert ended.end.cause is Cause.PARTITIONS_CHANGED
        assert member.generation.assignment.removed == set(here.partitions(2))
        await other.produce(["stays"])
        await here.processed.until(
            lambda: here.processed.values() == ["gone soon", "stays"], "not read"
        )


async def test_a_topic_that_is_created_again_is_read_from_its_start(kafka: Kafka) -> None:
    """If the leader has noticed the deletion, all records of the new topic are read."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce([f"old {number}" for number in range(5)])
        member = here.start("one")
        await here.processed.until(lambda: len(here.processed.entries) == 5, "not read")
        await here.until_committed()
        await in_thread(admin.delete_topic, here.bootstrap_servers, here.topic)
        await here.processed.until(lambda: member.owned() == 0, "not given up")
        await here.create()
        await here.produce([f"new {number}" for number in range(9)])
        await here.processed.until(lambda: len(here.processed.entries) >= 14, "not read")
        await here.processed.until(lambda: member.owned() == 1, "not taken up")
        assert here.processed.values()[5:] == [f"new {number}" for number in range(9)]


async def test_a_topic_that_is_created_again_unnoticed_is_read_on(
    kafka: Kafka,
) -> None:
    """A reader that did not notice continues at its position if that exists, or at the start.

    A fetch position has no topic id in librdkafka, and an offset has none in OffsetCommit up to
    version 9, so offset 5 of the old topic looks like offset 5 of the new one.
    """
    async with harness(kafka) as here:
        await here.create()
        await here.produce([f"old {number}" for number in range(5)])
        member = here.start("one", partition_watch_interval=3.0)
        await here.processed.until(lambda: len(here.processed.entries) == 5, "not read")
        epoch = member.generation.epoch
        await here.until_committed()
        await in_thread(admin.delete_topic, here.bootstrap_servers, here.topic)
        await here.create()
        await here.produce([f"new {number}" for number in range(9)])
        await here.processed.until(lambda: here.processed.values()[-1] == "new 8", "not read")
        fresh = [f"new {number}" for number in range(9)]
        assert here.processed.values()[5:] in (fresh, fresh[5:])
        await here.processed.until(
            lambda: member.owned() == 1 and member.generation.epoch > epoch, "not seen later"
        )
        causes = {generation.end.cause for generation in member.generations if generation.end}
        assert causes == {Cause.PARTITIONS_CHANGED}


async def test_a_pattern_finds_new_topics(kafka: Kafka) -> None:
    """A member with a pattern reads a matching topic that is created later."""
    async with harness(kafka) as here:
        prefix = unique("pattern")
        first, second = Harness(kafka, here.nursery), Harness(kafka, here.nursery)
        first.topic, second.topic = f"{prefix}-a", f"{prefix}-b"
        await first.create()
        await first.produce(["a"])
        member = here.start("one", topics=[re.compile(re.escape(prefix) + "-.*")])
        await here.processed.until(lambda: here.processed.values() == ["a"], "not read")
        await second.create()
        await second.produce(["b"])
        await here.processed.until(lambda: here.processed.values() == ["a", "b"], "not read")
        assert member.owned() == 2
        causes = [generation.end.cause for generation in member.generations if generation.end]
        assert set(causes) <= {Cause.SUBSCRIPTION_CHANGED, Cause.PARTITIONS_CHANGED}
