"""Every block of Python in README.md and docs/ runs in a test.

Whole programs run in processes of their own (``tests/examples``, ``tests/spark``), and pages with
many blocks have a test module here. This one runs the rest, with what a page leaves to its reader.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
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
from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch, Message
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.kafka import KafkaAddress
from kgroup.threaded import ConsumerGroup
from kgroup.types import TopicPartition
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
    "docs/generations.md": {0, 1, 2, 3},
    "docs/metrics.md": {0, 3},
    "docs/poison_and_retry.md": {2},
    "docs/testing.md": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
    "docs/timeline.md": {0},
    "docs/workers.md": {2, 3},
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
    read = defined("docs/poison_and_retry.md", 2, **names)["read"]
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


def test_what_testing_says_of_a_handler_alone() -> None:
    """The batch of the page can be made, and has its message."""
    names = defined("docs/testing.md", 1, kgroup=kgroup)
    assert names["batch"].start_offset == 7


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
