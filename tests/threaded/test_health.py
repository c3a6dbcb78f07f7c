"""The health of a threaded group, as other threads see it."""

from __future__ import annotations

import threading

from kgroup.status import Phase
from kgroup.threaded import Generation
from kgroup.types import TopicPartition
from tests.brokers import Kafka
from tests.threaded.harness import SOON, Harness, wait


def test_a_member_at_work(kafka: Kafka) -> None:
    """Any thread sees the lag, and that the member is ready; a blocked loop is not live."""
    here = Harness(kafka)
    here.create(1, 10)
    name = here.partition(0)
    has_batch, goes_on = threading.Event(), threading.Event()
    lags: list[int | None] = []

    def handle(generation: Generation, partition: TopicPartition) -> None:
        batch = next(generation.records(partition, max_records=4))
        lags.append(generation.lag()[partition])
        lags.append((batch.high_watermark or 0) - batch.next_offset)
        has_batch.set()
        goes_on.wait(SOON)

    group = here.group()
    assert not group.health().ready
    with group:
        generation = group.next(SOON)
        generation.start(handle, generation, name)
        wait(has_batch)
        assert group.health().ready
        assert group.status().lag == generation.lag() == {name: 6}
        entered, unblocked = threading.Event(), threading.Event()

        def block() -> None:
            entered.set()
            unblocked.wait(SOON)

        group._loop.post(block)
        wait(entered)
        assert group.health().live  # the first call only asks
        while group.status().loop_blocked <= 0:
            goes_on.wait(0.01)
        health = group.health(blocked_after=0.0)
        assert (health.live, health.ready) == (False, False)
        assert "event loop has not run" in health.reasons[0]
        unblocked.set()
        goes_on.set()
    assert lags == [6, 6]
    assert group.status().phase is Phase.CLOSED


def test_a_group_that_the_program_cancels(kafka: Kafka) -> None:
    """It is closed, and no failure."""
    here = Harness(kafka)
    here.create(1)
    with here.group() as group:
        group.next(SOON)
        group.cancel()
    assert (group.status().phase, group.health().live) == (Phase.CLOSED, True)


def test_names_of_threads_that_run_the_same_function(kafka: Kafka) -> None:
    """Each has a name of its own, so that the status and the stacks tell them apart."""
    here = Harness(kafka)
    here.create(1)
    goes_on = threading.Event()
    with here.group() as group:
        generation = group.next(SOON)
        for _ in range(3):
            generation.start(goes_on.wait, SOON)
        names = {each.name for each in threading.enumerate()}
        base = f"kgroup-{here.group_id}-Event.wait()"
        assert {base, f"{base}-2", f"{base}-3"} <= names
        goes_on.set()


def test_a_thread_that_outlasts_its_generation(kafka: Kafka) -> None:
    """It is what the next generation waits for; its name and its batch's age are in the status."""
    here = Harness(kafka)
    here.create(1, 1)
    has_batch, goes_on = threading.Event(), threading.Event()

    def handle(generation: Generation) -> None:
        for _ in generation.records():
            has_batch.set()
            goes_on.wait(SOON)

    with here.group(drain_timeout=0.2) as group:
        generation = group.next(SOON)
        generation.start(goes_on.wait, SOON)
        generation.start(handle, generation)
        wait(has_batch)
        generation.start(lambda: None)  # which returns, so that the generation ends
        generation.wait_ended(SOON)
        beside = threading.Thread(target=group.next, args=(SOON,))
        beside.start()
        while (status := group.status()).phase is not Phase.DRAINING or not status.detail:
            goes_on.wait(0.01)
        assert f"still running: kgroup-{here.group_id}-Event.wait()" in status.detail
        assert status.batch_age > 0
        assert not group.health(hanging_after=0.0).ready
        health = group.health(hanging_after=0.0, stuck_after=0.0)
        assert not health.live
        assert "Event.wait()" in health.reasons[0]
        goes_on.set()
        beside.join(SOON)
        assert group.health(hanging_after=SOON).ready
