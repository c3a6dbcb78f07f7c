"""Handler threads of a suspended process stop in the middle of their batches."""

from __future__ import annotations

import threading
from typing import Final, final

import attrs

from kgroup.clocks import SuspendAwareClock
from kgroup.errors import StaleGenerationError
from kgroup.events import GenerationEnded
from kgroup.group import default_runtime
from kgroup.interfaces import Batch
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.types import Cause, TopicPartition
from tests.brokers import Kafka
from tests.threaded.harness import SOON, Harness, RecordedEvents, wait

HOUR: Final = 3600.0
RECORDS: Final = 100
"""Records of each partition; not all of them are in batches of one."""


@final
class Suspending:
    """The system's clock; while it suspends, an hour passes before each reading.

    No heartbeat can then extend the lease, however quickly the coordinator answers.
    """

    def __init__(self) -> None:
        self.suspends = False
        self._real = SuspendAwareClock()
        self._slept = 0.0

    def now(self) -> float:
        """See ``Clock``."""
        if self.suspends:
            self._slept += HOUR
        return self._real.now() + self._slept


@final
class Handlers:
    """Handlers that stop in the middle of a batch until the test goes on."""

    def __init__(self, partitions: int) -> None:
        self.taken: list[tuple[TopicPartition, int]] = []
        self.held: dict[TopicPartition, Batch] = {}
        self.errors: list[StaleGenerationError] = []
        self.all_hold = threading.Barrier(partitions + 1)
        self.go_on = threading.Event()

    def handle(self, generation: Generation, partition: TopicPartition) -> None:
        """Process one partition."""
        for batch in generation.records(partition, max_records=RECORDS // 2):
            try:
                for message in batch:
                    self.taken.append((partition, message.offset()))
                    if len(batch) > 1 and partition not in self.held:
                        self.held[partition] = batch
                        self.all_hold.wait(SOON)
                        wait(self.go_on)
            except StaleGenerationError as error:
                self.errors.append(error)
                raise
            generation.commit({partition: batch.next_offset})


def group_of(here: Harness, clock: Suspending, recorded: RecordedEvents) -> ConsumerGroup:
    """A member whose clock the test can let jump."""
    runtime = attrs.evolve(default_runtime(), clock=clock)
    return ConsumerGroup(here.config(), runtime=runtime, on_event=recorded)


def test_handler_threads_take_no_record_past_the_lease(kafka: Kafka) -> None:
    """Each processes the record that it had taken; the next generation begins at the commits."""
    here, clock, recorded = Harness(kafka), Suspending(), RecordedEvents()
    here.create(3, RECORDS)
    handlers = Handlers(3)
    with group_of(here, clock, recorded) as group:
        first = group.next(SOON)
        for partition in first.assignment:
            first.start(handlers.handle, first, partition)
        handlers.all_hold.wait(SOON)
        taken = list(handlers.taken)
        clock.suspends = True
        handlers.go_on.set()
        end = first.wait_ended(SOON)
        clock.suspends = False
        second = group.next(SOON)
    assert end.cause is Cause.COORDINATOR_LOST
    assert recorded.wait(GenerationEnded).end is end
    assert handlers.taken == taken
    assert second.start_offsets == {
        partition: batch.messages[0].offset() for partition, batch in handlers.held.items()
    }
    assert len(handlers.errors) == 3
    for partition, batch in handlers.held.items():
        rest = f"{len(batch) - 1} of the {len(batch)} messages of a batch of {partition} were not"
        assert [error for error in handlers.errors if rest in str(error)]


def test_handler_threads_finish_their_batches_in_a_drain(kafka: Kafka) -> None:
    """A planned end stops no iteration, and all that was handed out is committed."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(3, RECORDS)
    handlers = Handlers(3)
    with group_of(here, Suspending(), recorded) as group:
        first = group.next(SOON)
        for partition in first.assignment:
            first.start(handlers.handle, first, partition)
        handlers.all_hold.wait(SOON)
        group.shutdown()
        assert first.ending.wait(SOON)
        handlers.go_on.set()
    assert handlers.errors == []
    for partition, batch in handlers.held.items():
        assert here.committed(partition.partition) == batch.next_offset
    assert set(handlers.taken).issuperset(
        (partition, message.offset())
        for partition, batch in handlers.held.items()
        for message in batch.messages
    )


def test_a_body_continues_with_the_next_generation(kafka: Kafka) -> None:
    """It does so if the scope keeps the error, and the coordinator still knows the member."""
    here, clock, recorded = Harness(kafka), Suspending(), RecordedEvents()
    here.create(1, RECORDS)
    taken: list[int] = []
    lost: list[Batch] = []
    with group_of(here, clock, recorded) as group:
        for generation in group:
            with generation.scope():
                for batch in generation.records():
                    for message in batch:
                        taken.append(message.offset())
                        if len(batch) > 1 and not lost:
                            lost.append(batch)
                            clock.suspends = True
                    generation.commit({batch.partition: batch.next_offset})
                    if batch.next_offset == RECORDS:
                        group.shutdown()
            clock.suspends = False
    (batch,) = lost
    repeated = batch.messages[0].offset()
    assert taken == [*range(repeated + 1), *range(repeated, RECORDS)]
    assert here.committed() == RECORDS
