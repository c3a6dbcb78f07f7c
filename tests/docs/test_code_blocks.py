"""Every block of Python in README.md and docs/ runs in a test.

Whole programs run in processes of their own (``tests/examples``, ``tests/spark``), and pages with
many blocks have a test module here. This one runs the rest, with what a page leaves to its reader.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

import kgroup
import kgroup.testing.kafka
from kgroup import GroupConfig, broker
from kgroup.broker import NewRecord
from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch, Message
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.kafka import KafkaAddress
from kgroup.threaded import ConsumerGroup
from kgroup.types import Assignment, TopicPartition
from tests.brokers import unique
from tests.conftest import ROOT
from tests.group.harness import Harness, harness

BLOCK: Final = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_ELSEWHERE: Final = {
    "README.md": {0, 1},  # test_workers_in_docs
    "docs/assignors.md": {0},  # test_assignors_page
    "docs/asyncio.md": {0, 1, 2},  # test_workers_in_docs, test_asyncio_page
    "docs/coming_from.md": {0, 1, 2, 3, 4},  # test_workers_in_docs
    "docs/events.md": {0},  # test_workers_in_docs
    "docs/exactly_once.md": {0},  # test_workers_in_docs
    "docs/metrics.md": {1, 2, 4},  # test_workers_in_docs
    "docs/poison_and_retry.md": {0, 1},  # test_workers_in_docs
    "docs/providers.md": set(range(11)),  # test_providers_page
    "docs/security.md": {0},  # test_security_client
    "docs/simulation.md": {0, 1, 2, 3, 4, 5},  # test_simulation_page
    "docs/spark.md": {0, 1, 2, 3, 4},  # tests/spark/test_docs_page
    "docs/start_here.md": {0, 1},  # test_start_here_page
    "docs/testing.md": {10},  # tests/spark/testing: a cluster takes seconds to start
    "docs/threads.md": {0},  # test_workers_in_docs
    "docs/transactions.md": {0, 1},  # test_transactions_in_docs
    "docs/workers.md": {0, 1},  # test_workers_in_docs
}
"""The blocks of each page that another module runs."""
RUN_HERE: Final = {
    "docs/coming_from.md": {5, 6},
    "docs/generations.md": {0, 1, 2, 3},
    "docs/metrics.md": {0, 3},
    "docs/operating.md": {0},
    "docs/poison_and_retry.md": {2, 3},
    "docs/testing.md": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
    "docs/timeline.md": {0},
    "docs/workers.md": {2, 3, 4},
}


def block(page: str, number: int) -> str:
    """A page's block."""
    found: list[str] = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return found[number]


def defined(page: str, number: int, **names: Any) -> dict[str, Any]:
    """Run a block as a module that has these names, and return all of its names."""
    exec(block(page, number), names)  # noqa: S102 # our own page
    return names


def as_function(page: str, number: int, **names: Any) -> Callable[[], Awaitable[None]]:
    """A block that is a part of an async function, as that function."""
    body = textwrap.indent(block(page, number), "    ")
    exec(f"async def function():\n{body}", names)  # noqa: S102 # our own page
    function: Callable[[], Awaitable[None]] = names["function"]
    return function


def test_every_block_is_run_somewhere() -> None:
    """A new block has to be added to a test, and to one of the two lists."""
    found = {
        str(page.relative_to(ROOT)): set(range(len(BLOCK.findall(page.read_text("utf-8")))))
        for page in PAGES
    }
    listed = {
        page: RUN_ELSEWHERE.get(page, set()) | RUN_HERE.get(page, set())
        for page in {*RUN_ELSEWHERE, *RUN_HERE}
    }
    assert {page: numbers for page, numbers in found.items() if numbers} == listed


class Processed:
    """What a page's function was called with."""

    def __init__(self) -> None:
        self.records: list[int] = []

    async def __call__(self, given: Message | Batch) -> None:
        """The function ``process`` that pages leave to their readers."""
        messages: Iterable[Message] = given if isinstance(given, Batch) else [given]
        self.records += [int(message.value() or b"") for message in messages]
        await trio.lowlevel.checkpoint()


async def played(
    here: Harness, task: Callable[[Generation, TopicPartition], Awaitable[object]]
) -> None:
    """Run a task for the topic's partition, for some seconds."""
    await here.append(5)
    async with here.group() as group:
        generation = await group.next()
        (partition,) = generation.assignment
        generation.start_soon(task, generation, partition)
        await trio.sleep(5)


@pytest.mark.parametrize(
    ("page", "number", "commits"),
    [
        ("docs/generations.md", 0, True),
        ("docs/generations.md", 2, True),
        ("docs/metrics.md", 0, False),
    ],
)
async def test_loops_over_records(
    page: str, number: int, commits: bool, autojump_clock: MockClock
) -> None:
    """They process every record, and commit if they say so."""
    processed = Processed()

    async def task(generation: Generation, partition: TopicPartition) -> None:
        names = {"generation": generation, "partition": partition, "process": processed}
        await as_function(page, number, **names)()

    async with harness() as here:
        await played(here, task)
        assert processed.records == [0, 1, 2, 3, 4]
        assert list((await here.committed()).values()) == ([5] if commits else [])


async def test_retries_in_a_loop_of_ones_own(autojump_clock: MockClock) -> None:
    """Records that cannot be processed are parked at once, and the others are processed."""
    processed, parked = Processed(), list[int]()

    async def handle(_: Generation, message: Message) -> None:
        if message.offset() == 2:
            raise ValueError("not JSON")
        await processed(message)

    async def park(message: Message, _: Exception) -> None:
        await trio.lowlevel.checkpoint()
        parked.append(message.offset() or 0)

    names = {"kgroup": kgroup, "handle": handle, "park": park}
    read = defined("docs/poison_and_retry.md", 3, **names)["read"]
    async with harness() as here:
        await played(here, read)
        assert (processed.records, parked) == ([0, 1, 3, 4], [2])
        assert list((await here.committed()).values()) == [5]


async def test_a_commit_whose_outcome_is_unknown(autojump_clock: MockClock) -> None:
    """It is sent again, and returns when the coordinator answers again."""
    commit = defined("docs/generations.md", 3, kgroup=kgroup, trio=trio)["commit"]
    async with harness() as here:

        async def task(generation: Generation, partition: TopicPartition) -> None:
            async for batch in generation.records(partition):
                here.broker.slow(15.0, "OffsetCommit", times=1)
                await commit(generation, {partition: batch.next_offset})

        await here.append(5)
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(task, generation, TopicPartition("topic", 0))
            await trio.sleep(20)
            assert list((await here.committed()).values()) == [5]
        assert len(here.requests_for("offset_commit")) == 2


@pytest.mark.parametrize(("page", "number"), [("docs/metrics.md", 3), ("docs/workers.md", 2)])
async def test_functions_of_workers(page: str, number: int, autojump_clock: MockClock) -> None:
    """`serve` calls them with all records."""
    processed = Processed()
    handle = defined(page, number, process=processed)["handle"]
    async with harness() as here:
        await here.append(5)
        async with here.group() as group, trio.open_nursery() as nursery:
            nursery.start_soon(kgroup.serve, group, handle)
            await trio.sleep(5)
            group.shutdown()
        assert processed.records == [0, 1, 2, 3, 4]
        assert list((await here.committed()).values()) == [5]


async def test_a_switch(autojump_clock: MockClock) -> None:
    """The member processes while it is on."""
    obey = defined("docs/generations.md", 1)["obey"]
    async with harness() as here:

        async def switch() -> AsyncIterator[bool]:
            for on in (False, True):
                yield on
                await trio.sleep(5)
                seen.append((on, bool(group.subscription)))

        seen: list[tuple[bool, bool]] = []
        async with here.group() as group, trio.open_nursery() as nursery:

            async def iterate() -> None:
                async for _ in group:
                    pass

            nursery.start_soon(iterate)
            await obey(group, switch())
            group.shutdown()
        assert seen == [(False, False), (True, True)]


async def test_a_larger_program() -> None:
    """The group of docs/workers.md runs beside other work, which closes it."""
    processed = Processed()

    async def handle(_: Generation, batch: Batch) -> None:
        await processed(batch)

    async def other_work(group: kgroup.ConsumerGroup) -> None:
        while len(processed.records) < 3:  # noqa: ASYNC110 # any work
            await trio.sleep(0.01)
        group.shutdown()

    async with broker.serve() as running:
        await running.create_topic("orders", 1)
        await running.append("orders", 0, [b"0", b"1", b"2"])
        config = GroupConfig(
            bootstrap_servers=running.bootstrap_servers, group_id="larger", topics=["orders"]
        )
        names = {"config": config, "handle": handle, "other_work": other_work}
        with trio.fail_after(30):
            await defined("docs/workers.md", 3, kgroup=kgroup, trio=trio, **names)["main"]()
    assert processed.records == [0, 1, 2]


async def test_a_control_task(autojump_clock: MockClock) -> None:
    """It pauses, also over the end of a generation, seeks in between, and resumes."""
    processed = Processed()
    names = defined("docs/workers.md", 4, kgroup=kgroup, process=processed)
    partition = TopicPartition("topic", 0)
    names["seek"](partition, 0)  # nothing is read yet
    async with harness() as here, here.group() as group, trio.open_nursery() as nursery:
        await here.append(3)
        nursery.start_soon(kgroup.serve, group, names["handle"])
        await trio.sleep(5)
        assert processed.records == [0, 1, 2]
        names["pause"](partition)
        await here.append(2)
        await trio.sleep(5)
        await here.broker.remove_member("group", names["reading"][partition].member_id)
        await trio.sleep(10)
        assert processed.records == [0, 1, 2]
        names["resume"](partition)
        await trio.sleep(5)
        assert len(processed.records) == 5
        names["seek"](partition, 1)
        await trio.sleep(5)
        assert len(processed.records) == 9
        group.shutdown()
        assert list((await here.committed()).values()) == [5]


async def test_state_of_partitions() -> None:
    """It is kept while no other member can have had the partition, and is released once."""
    p0, p1, p2 = (TopicPartition("orders", number) for number in range(3))
    log: list[str] = []
    assignments = [
        Assignment([p0, p1]),
        Assignment([p0, p1, p2], previous=[p0, p1]),
        Assignment([p1, p2], previous=[p0, p1, p2], retained=[p2]),
    ]

    @asynccontextmanager
    async def group(_: object) -> AsyncIterator[AsyncIterator[object]]:
        async def generations() -> AsyncIterator[object]:
            for assignment in assignments:
                yield SimpleNamespace(assignment=assignment, start_soon=lambda *_: None)

        yield generations()
        log.append("left")

    def open_state(partition: TopicPartition) -> object:
        log.append(f"open {partition.partition}")
        return SimpleNamespace(close=lambda: log.append(f"close {partition.partition}"))

    names = {"kgroup": SimpleNamespace(ConsumerGroup=group), "open_state": open_state}
    await defined("docs/coming_from.md", 5, handle=None, **names)["work"](None)
    assert sorted(log[:3]) == ["open 0", "open 1", "open 2"]
    assert sorted(log[3:5]) == ["close 0", "close 1"]
    assert (log[5:7], sorted(log[7:])) == (["open 1", "left"], ["close 1", "close 2"])


def test_commits_of_several_batches(embedded_kafka: EmbeddedKafka) -> None:
    """What is processed is committed when it is time, also on an idle topic, and at the end."""
    embedded_kafka.create_topic("commits", 1)
    config = GroupConfig(
        bootstrap_servers=embedded_kafka.bootstrap_servers, group_id="commits", topics=["commits"]
    )
    text = block("docs/coming_from.md", 6)
    for wait, expected in ((0.1, 2), (1000.0, 4)):
        names: dict[str, Any] = {"time": time, "process": (done := list[object]()).append}
        exec(text.replace("+ 5", f"+ {wait}"), names)  # noqa: S102 # our own page
        embedded_kafka.append("commits", 0, [b"a", b"b"])
        with ConsumerGroup(config) as group:
            generation = group.next(30)
            generation.start(names["handle"], generation)
            while len(done) < 2 or (wait < 1 and not embedded_kafka.committed("commits")):
                time.sleep(0.01)
        assert [at.offset for at in embedded_kafka.committed("commits").values()] == [expected]


@contextmanager
def worker_of(page: str, number: int, servers: str, names: dict[str, Any]) -> Iterator[None]:
    """Run a worker of a page beside the block, with these names."""
    entered = threading.Event()

    def run(config: GroupConfig, handle: Callable[..., int | None]) -> None:
        with ConsumerGroup(config) as group:
            names["group"] = group
            entered.set()
            kgroup.threaded.serve(group, handle)

    text = block(page, number).replace("localhost:9092", servers)
    text = text.replace("from kgroup.threaded import run\n", "")
    names["run"] = run
    worker = threading.Thread(target=exec, args=(text, names))
    worker.start()
    try:
        yield
    finally:
        assert entered.wait(30)
        names["group"].shutdown()
        worker.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread does."""
    while not condition():
        time.sleep(0.01)


def test_reading_again_from_a_time(embedded_kafka: EmbeddedKafka) -> None:
    """Records from that time on are read again; a time after the last record is the end."""
    orders = TopicPartition("orders", 0)
    embedded_kafka.create_topic("orders", 1)
    records = [NewRecord(b"", timestamp=1000 * number) for number in range(4)]
    embedded_kafka.append("orders", 0, records)
    offsets, times = list[int](), {3: 2500, 4: 9000}

    def process(message: Message) -> None:
        offset = message.offset()
        offsets.append(offset)
        if (requested := times.pop(offset, None)) is not None:
            names["requested"][orders] = requested
            embedded_kafka.append("orders", 0, [NewRecord(b"", timestamp=3000)])

    names: dict[str, Any] = {"process": process}
    with worker_of("docs/operating.md", 0, embedded_kafka.bootstrap_servers, names):
        wait_until(lambda: [at.offset for at in embedded_kafka.committed("orders").values()] == [6])
    assert offsets == [0, 1, 2, 3, 3, 4]


def test_dead_letters_are_written_back(embedded_kafka: EmbeddedKafka) -> None:
    """A record goes to its topic and partition, with its key and its own headers."""
    embedded_kafka.create_topic("orders", 2)
    embedded_kafka.create_topic("orders.failed", 1)
    places = {"dead_letter.topic": b"orders", "dead_letter.partition": b"1"}
    headers = [("own", b"1"), *places.items()]
    letter = NewRecord(b"value", key=b"key", headers=headers)
    embedded_kafka.append("orders.failed", 0, [letter])
    servers = embedded_kafka.bootstrap_servers
    with worker_of("docs/poison_and_retry.md", 2, servers, {}):
        wait_until(lambda: bool(embedded_kafka.committed("orders.replay")))
    config = GroupConfig(bootstrap_servers=servers, group_id="reader", topics=["orders"])
    with ConsumerGroup(config) as group:
        batch = group.next(30).records().next(30)
    assert batch is not None
    (message,) = batch.messages
    assert (message.partition(), message.key(), message.value()) == (1, b"key", b"value")
    assert message.headers() == [("own", b"1")]


def test_what_testing_says_of_a_handler_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the page passes for a handler that checks `ending`."""

    def handle(generation: Any, batch: Batch) -> int | None:
        for message in batch:
            assert message.value() == b"paid"
            if generation.ending.is_set():
                return message.offset() + 1
        return None

    monkeypatch.setitem(sys.modules, "worker", SimpleNamespace(handle=handle))
    defined("docs/testing.md", 1)["test_a_batch"]()


async def test_what_testing_says_of_memory(autojump_clock: MockClock) -> None:
    """The test of the page passes, and its cluster loses a coordinator."""
    names = defined("docs/testing.md", 0)
    await names["test_everything_is_committed"](autojump_clock)
    await as_function("docs/testing.md", 2)()


async def test_what_testing_says_of_a_served_broker() -> None:
    """The program gets its address."""
    addresses = []

    async def main(bootstrap_servers: str) -> None:
        addresses.append(bootstrap_servers)
        await trio.lowlevel.checkpoint()

    await as_function("docs/testing.md", 3, main=main)()
    assert len(addresses) == 1


def test_what_testing_says_of_logins(own_embedded_kafka: type[EmbeddedKafka]) -> None:
    """The test of the page passes: a member logs in, and the rules allow what it needs."""

    def program(bootstrap_servers: str, security: kgroup.Security) -> None:
        config = GroupConfig(
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            topics=["orders"],
            security=security,
        )
        with ConsumerGroup(config) as group:
            assert list(group.next(60).assignment) == [TopicPartition("orders", 0)]

    names = defined("docs/testing.md", 5, run_my_program=program)
    names["test_a_login"](own_embedded_kafka)


def test_what_testing_says_of_faults(embedded_kafka: EmbeddedKafka) -> None:
    """The calls of the page exist."""
    defined("docs/testing.md", 6)["test_faults"](embedded_kafka)


def process_two(bootstrap_servers: str, *, group_id: str, topic: str) -> None:
    """The program that the page leaves to its readers: it commits two records."""
    config = GroupConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, topics=[topic])
    with ConsumerGroup(config) as group:
        for generation in group:
            partition, seen = TopicPartition(topic, 0), 0
            for batch in generation.records(partition):
                seen += len(batch)
                generation.commit({partition: batch.next_offset})
                if seen == 2:
                    return


def test_what_testing_says_of_the_embedded_kafka(embedded_kafka: EmbeddedKafka) -> None:
    """The test of the page passes."""
    program = partial(process_two, group_id="my-group", topic="orders")
    names = defined("docs/testing.md", 4, run_my_program=program)
    names["test_my_program"](embedded_kafka)


def test_what_testing_says_of_events(embedded_kafka: EmbeddedKafka) -> None:
    """The test of the page passes."""
    names = defined("docs/testing.md", 7, handle=lambda _, batch: None)
    names["test_a_lost_generation"](embedded_kafka)


@pytest.mark.real_kafka
def test_what_testing_says_of_the_real_kafka(real_kafka: KafkaAddress) -> None:
    """The test of the page passes, with names of its own on the broker that all tests share."""
    topic, group_id = unique("orders"), unique("my-group")
    text = block("docs/testing.md", 8).replace("orders", topic).replace("my-group", group_id)

    names: dict[str, Any] = {"run_my_program": partial(process_two, group_id=group_id, topic=topic)}
    exec(text, names)  # noqa: S102 # our own page
    names["test_my_program"](real_kafka)


def test_what_testing_says_of_a_kafka_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program gets its address, and it is restarted; `tests/testing` starts a real one."""
    done: list[object] = []

    @contextmanager
    def started(settings: dict[str, object]) -> Iterator[Any]:
        done.append(settings)
        yield SimpleNamespace(bootstrap_servers="localhost:1", restart=lambda: done.append({}))

    monkeypatch.setattr(kgroup.testing.kafka, "RealKafka", started)
    defined("docs/testing.md", 9, run_my_program=done.append)
    assert done == [{"group.max.size": 3}, "localhost:1", {}]


async def test_events_are_written(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Members with the page's setting write their events."""
    text = block("docs/timeline.md", 0)
    assert "/var/log" in text
    names: dict[str, Any] = {}
    exec(text.replace("/var/log", str(tmp_path)), names)  # noqa: S102 # our own page
    assert names["config"].events_to == str(tmp_path / f"orders-{os.getpid()}.events")
    async with harness() as here, here.group(events_to=names["config"].events_to) as group:
        await group.next()
    (file,) = tmp_path.iterdir()  # noqa: ASYNC240 # a small file
    assert "Joined" in file.read_text("utf-8")
