"""Runs the workers in README.md and docs/ unchanged, except for broker and topic."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import attrs
import pytest

from tests.brokers import EMBEDDED
from tests.conftest import ROOT
from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

PROCESS = '''
import trio


async def process(message):
    """The function that the page leaves to its reader."""
    print(message.topic(), message.partition(), message.offset(), flush=True)
    await trio.lowlevel.checkpoint()


'''
PROCESS_ON_ASYNCIO = '''
import asyncio


async def process(message):
    """The function that the page leaves to its reader."""
    print(message.topic(), message.partition(), message.offset(), flush=True)
    await asyncio.sleep(0)


'''
STORE = '''
class Store:
    """The store that the page leaves to its reader."""

    def __init__(self):
        self.offsets = {}
        self.generations = {}

    def next_offset(self, partition):
        return self.offsets.get(partition)

    def write(self, generation_id, batch):
        assert self.generations.get(batch.partition, 0) <= generation_id
        assert self.offsets.get(batch.partition, batch.start_offset) == batch.start_offset
        for message in batch.messages:
            line = f"{message.topic()} {message.partition()} {message.offset()}\\n"
            print(line, end="", flush=True)
        self.offsets[batch.partition] = batch.next_offset
        self.generations[batch.partition] = generation_id


store = Store()
'''
PROCESS_IN_THREADS = '''
def process(message):
    """The function that the page leaves to its reader."""
    print(f"{message.topic()} {message.partition()} {message.offset()}\\n", end="", flush=True)


'''
PROCESS_OF_AIOKAFKA = '''
import asyncio


async def process(message):
    """The function that the page leaves to its reader."""
    print(message.topic, message.partition, message.offset, flush=True)
    await asyncio.sleep(0)


'''
CONFIG_AND_HANDLE = '''
import functools
import sys

import kgroup
import trio

config = kgroup.GroupConfig(
    bootstrap_servers="localhost:9092", group_id="orders", topics=["orders"]
)
print = functools.partial(print, file=sys.stderr)


async def handle(generation, batch):
    for message in batch:
        place = f"{message.topic()} {message.partition()} {message.offset()}\\n"
        await trio.to_thread.run_sync(sys.stdout.write, place)
        sys.stdout.flush()


def start_server(health):
    """The server that the page leaves to its reader."""
    assert callable(health)


'''
"""Before a page's lines about one argument of `run`."""
FINISHED = "has finished its work and left: "


def program(page: str, number: int, topic: Topic) -> str:
    """One of a page's programs, with `process`, for a broker and a topic."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[str] = re.findall(r"^```python\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    example = found[number]
    if "kgroup.run(config" in example and "config =" not in example:
        example = CONFIG_AND_HANDLE + example.replace(
            "start_http_server(9000)", "start_http_server(0)"
        )
    assert '"localhost:9092"' in example
    assert example.count('"orders"') == 2
    named = example.replace("localhost:9092", topic.bootstrap_servers)
    if "store." in example:
        process = STORE
    elif CONFIG_AND_HANDLE in example:
        process = ""
    elif "aiokafka" in example:
        process = PROCESS_OF_AIOKAFKA
    elif "kgroup.aio" in example:
        process = PROCESS_ON_ASYNCIO
    else:
        process = PROCESS if "await process" in example else PROCESS_IN_THREADS
    return process + named.replace('"orders"', f'"{topic.name}"')


# This tests what the pages say. That both brokers answer alike is tested with the examples, which
# run on both.
@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
@pytest.mark.parametrize(
    ("page", "number", "signal_number", "said", "fails"),
    [
        ("README.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("README.md", 0, signal.SIGINT, f"{FINISHED}SIGINT", False),
        ("README.md", 1, signal.SIGINT, "KeyboardInterrupt", True),
        ("docs/workers.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/workers.md", 1, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/asyncio.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/asyncio.md", 1, signal.SIGTERM, "", False),
        ("docs/asyncio.md", 1, signal.SIGINT, "KeyboardInterrupt", True),
        ("docs/poison_and_retry.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/poison_and_retry.md", 1, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/coming_from.md", 0, signal.SIGTERM, "", False),
        ("docs/coming_from.md", 1, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/coming_from.md", 2, signal.SIGTERM, "", False),
        ("docs/coming_from.md", 3, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/coming_from.md", 4, signal.SIGINT, "KeyboardInterrupt", True),
        ("docs/events.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/exactly_once.md", 0, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/metrics.md", 1, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/metrics.md", 2, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/metrics.md", 4, signal.SIGTERM, f"{FINISHED}SIGTERM", False),
        ("docs/threads.md", 0, signal.SIGTERM, "", False),
    ],
)
def test_the_workers_in_the_docs_run(
    reader: Reader,
    topic: Topic,
    page: str,
    number: int,
    signal_number: signal.Signals,
    said: str,
    fails: bool,
) -> None:
    """They process every record once and commit; at a signal they end, and the member leaves."""
    produced = topic.produce(50)
    file = reader.folder / f"{topic.name}.py"
    file.write_text(program(page, number, topic), encoding="utf-8")
    if re.search("aiokafka|prometheus|opentelemetry", file.read_text(encoding="utf-8")):
        reader = attrs.evolve(reader, python=Path(sys.executable))  # kgroup needs none of them
    with Worker(reader, file) as worker:
        worker.until(lambda lines: len(lines) >= len(produced))
        topic.wait_until_committed(topic.name)
        worker.send(signal_number)
        assert (worker.ended() != 0) is fails
        assert said in worker.errors
        assert sorted(topic.printed(worker.lines)) == produced
    assert topic.members(topic.name) == []
