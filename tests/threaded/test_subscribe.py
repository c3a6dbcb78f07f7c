"""Threaded groups that change their subscription while they run; on both brokers."""

from __future__ import annotations

import threading

import pytest

from kgroup.errors import ArgumentError, GroupClosedError
from kgroup.events import GenerationEnded, Left
from kgroup.status import Phase
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.types import Cause
from tests.brokers import Kafka
from tests.threaded.harness import (
    SOON,
    Harness,
    ProcessedRecords,
    RecordedEvents,
    process_all,
)


def test_any_thread_may_subscribe(kafka: Kafka) -> None:
    """A handler, the body and another thread replace the topics; the member never leaves."""
    here, other = Harness(kafka), Harness(kafka)
    here.create(1, 5)
    other.create(1, 5)
    recorded, processed = RecordedEvents(), ProcessedRecords()

    def change(group: ConsumerGroup, generation: Generation) -> None:
        process_one(generation, processed)
        group.subscribe([other.topic])
        generation.ending.wait()

    with here.group(recorded) as group:
        first = group.next(SOON)
        assert first.start(change, group, first)
        second = group.next(SOON)
        assert [one.topic for one in second.assignment] == [other.topic]
        assert first.end is not None
        assert first.end.cause is Cause.SUBSCRIPTION_CHANGED
        assert group.subscription == (other.topic,)
        second.start(process_all, second, other.partition(0), processed)
        processed.wait(10)
        threading.Thread(target=group.subscribe, args=([here.topic],)).start()
        third = group.next(SOON)
        assert [one.topic for one in third.assignment] == [here.topic]
        assert recorded.of(Left) == []
    assert here.committed() == 5
    assert recorded.wait(Left).notified


def process_one(generation: Generation, processed: ProcessedRecords) -> None:
    """Process and commit what there is in the only partition."""
    (partition,) = generation.assignment
    for batch in generation.records(partition):
        processed.add(batch)
        generation.commit({partition: batch.next_offset})
        return


def test_a_member_that_unsubscribes_waits(kafka: Kafka) -> None:
    """It leaves, next() waits, and after subscribe() it continues where it was."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(1, 5)
    with here.group(recorded) as group:
        group.next(SOON)
        group.unsubscribe()
        with pytest.raises(TimeoutError):
            group.next(1.5)
        assert recorded.wait(Left).reason == "the program unsubscribed"
        assert recorded.wait(GenerationEnded).end.cause is Cause.SUBSCRIPTION_CHANGED
        assert group.subscription == ()
        assert group.status().phase is Phase.UNSUBSCRIBED
        assert group.health().ready
        group.subscribe([here.topic])
        assert group.next(SOON).assignment.partitions == (here.partition(0),)


def test_the_subscription_before_the_block(kafka: Kafka) -> None:
    """It may be replaced before the group is entered; then its background thread does not run."""
    here = Harness(kafka)
    here.create(1, 5)
    group = ConsumerGroup(here.config(topics=["nothing"]))
    group.subscribe([here.topic])
    with pytest.raises(ArgumentError, match="topics="):
        group.subscribe([])
    with group:
        assert group.next(SOON).assignment.partitions == (here.partition(0),)
        group.shutdown("enough")
        with pytest.raises(GroupClosedError, match="enough"):
            group.unsubscribe()
    with pytest.raises(GroupClosedError, match="enough"):
        group.subscribe([here.topic])
