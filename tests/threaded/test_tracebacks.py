"""What Python prints of a thread's exception: its note, and no cancellation."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from kgroup.interfaces import Batch
from kgroup.threaded import ConsumerGroup, Generation, serve
from kgroup.types import TopicPartition
from tests.brokers import EMBEDDED, Kafka
from tests.group.test_tracebacks import fail
from tests.threaded.harness import Harness

pytestmark = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)

NOTE = (
    "read raised this in generation 1 of group '{group}'; it was started with {topic}-0;"
    " its stream last handed out offsets 0 to 4 of {topic}-0"
)
SERVED = "handle raised this for offsets 0 to 4 of {topic}-0, in generation 1 of"


def read(generation: Generation, partition: TopicPartition) -> None:
    """A thread that raises for its first batch."""
    for _ in generation.records(partition):
        fail()


def handle(_: Generation, batch: Batch) -> None:
    """A worker's function that raises."""
    fail()


def iterate(group: ConsumerGroup) -> None:
    """A body that starts a thread for each partition."""
    for generation in group:
        for partition in generation.assignment:
            generation.start(read, generation, partition)


def served(threads: int | None) -> Callable[[ConsumerGroup], None]:
    """A body that is a worker."""
    return lambda group: serve(group, handle, threads=threads)


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (iterate, NOTE),
        (served(None), SERVED),
        (served(2), SERVED),
    ],
    ids=["start", "serve", "pool"],
)
def test_the_traceback_of_a_thread(
    kafka: Kafka, body: Callable[[ConsumerGroup], None], note: str
) -> None:
    """It has one note and the program's cause, and no cancellation."""
    here = Harness(kafka)
    here.create(1, 5)
    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        body(group)
    printed = "".join(traceback.format_exception(raised.value))
    assert "Cancelled" not in printed
    assert printed.count("raised this") == 1
    assert note.format(group=here.group_id, topic=here.topic) in printed
    assert "KeyError: 'cause'" in printed
    assert printed.startswith("  + Exception Group Traceback")


def test_what_the_program_handles_outside_is_the_context(kafka: Kafka) -> None:
    """A block within ``except`` raises its threads' exceptions with that context."""
    here = Harness(kafka)
    here.create(1, 5)
    with pytest.raises(ExceptionGroup) as raised:
        try:
            raise LookupError("outside")
        except LookupError:
            with here.group() as group:
                iterate(group)
    assert isinstance(raised.value.__context__, LookupError)
