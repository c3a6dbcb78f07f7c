"""What librdkafka makes of requests for the leaders of topics.

The tests read librdkafka's debug log, which says for what reason it requests metadata, and which
topics it does not know when its timer looks at them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast, final

import confluent_kafka
import pytest
import trio

from kgroup import broker
from kgroup.config import GroupConfig
from kgroup.records import consumer_fetches
from kgroup.records.buffered_source import OnFault
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.types import TopicPartition
from tests.records.environments import Environment, receive_values

BY_TIMER = "refresh unavailable topics"
UNKNOWN = "metadata information unknown"
CONNECTED = r"GroupCoordinator\]: .*: connected"
"""librdkafka's last connection is there: it requests no more metadata because of that."""


@final
class DebugLog:
    """What the clients of this process write to standard error, which is a file meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """All of it."""
        return self._path.read_text(errors="replace")

    def since_assigned(self) -> list[str]:
        """The lines after the last time that one partition was assigned."""
        return self.read().split("Added 1 partition(s) to assignment")[-1].splitlines()

    async def until(self, pattern: str) -> None:
        """Wait until there is a line in which this is found."""
        while not re.search(pattern, self.read()):  # noqa: ASYNC110 - nothing says it
            await trio.sleep(0.01)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[DebugLog]:
    """Standard error in a file of its own, which is shown when the test fails.

    pytest's capfd empties its file after it has read it, and loses what is written in between. This
    fixture is async because pytest sets standard error again before the test's event loop begins.
    """
    path = tmp_path / "stderr"
    before = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield DebugLog(path)
    finally:
        os.dup2(before, 2)
        os.close(before)
        sys.stderr.write(path.read_text(errors="replace"))


def verbose_source(config: GroupConfig, on_fault: OnFault) -> LibrdkafkaSource:
    """A source whose librdkafka writes its debug log to standard error."""

    def verbose(settings: dict[str, Any]) -> confluent_kafka.Consumer:
        del settings["logger"]  # it would get the lines only when the Consumer is polled
        return confluent_kafka.Consumer({**settings, "debug": "topic,metadata,cgrp"})

    return LibrdkafkaSource(config, on_fault, open_consumer=verbose)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_kafka)])
async def environment(request: pytest.FixtureRequest) -> AsyncIterator[Environment]:
    """A broker, and sources that write librdkafka's debug log."""
    if request.param == "real":
        servers = request.getfixturevalue("real_kafka").bootstrap_servers
        yield Environment(servers, verbose_source)
        return
    async with broker.serve() as running:
        yield Environment(running.bootstrap_servers, verbose_source)


async def test_a_prepared_topic_is_known_when_it_is_assigned(
    environment: Environment, log: DebugLog
) -> None:
    """After ``prepare``, librdkafka's timer never meets the assigned topic without its leaders."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, ["a"])
    async with environment.source() as source:
        cast("LibrdkafkaSource", source).prepare([partition.topic])
        await log.until(rf"Topic {partition.topic} \[0\] Leader ")
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        await receive_values(source, 1, [partition], 1)
        lines = log.since_assigned()
    assert [line for line in lines if f"{partition.topic} {UNKNOWN}" in line] == []


async def test_a_topic_is_known_once_there_is_a_broker(log: DebugLog) -> None:
    """``prepare`` need not be repeated: librdkafka asks for the topic as soon as it connects."""
    async with broker.serve() as running:
        environment = Environment(running.bootstrap_servers, verbose_source)
        topic = await environment.topic()
        await running.stop()
        async with environment.source() as source:
            cast("LibrdkafkaSource", source).prepare([topic])
            await log.until(f"New local topic: {topic}")
            await running.start()
            await log.until(rf"Topic {topic} \[0\] Leader ")


async def test_an_added_partition_is_requested_when_it_is_assigned(
    environment: Environment, log: DebugLog
) -> None:
    """The first request after the assignment is kgroup's, before any of librdkafka's timer."""
    first = TopicPartition(await environment.topic(), 0)
    added = TopicPartition(first.topic, 1)
    await environment.produce(first, ["a"])
    async with environment.source() as source:
        source.assign(1, {first: 0})
        source.open(1, [first])
        await receive_values(source, 1, [first], 1)
        await log.until(CONNECTED)
        await environment.grow(first.topic, 2)
        await environment.produce(added, ["b"])
        source.assign(2, {first: 1, added: 0})
        source.open(2, [first, added])
        await receive_values(source, 2, [added], 1)
        requests = [line for line in log.since_assigned() if "Request metadata" in line]
    assert requests[0].endswith("Request metadata for 1 topic(s): application requested")


async def test_without_requests_the_timer_finds_the_topic(
    environment: Environment,
    log: DebugLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If kgroup requests nothing, no record comes before librdkafka's timer has met the topic."""
    monkeypatch.setattr(consumer_fetches, "request_leaders", lambda *_: None)
    read, topic = await environment.topic(), await environment.topic()
    before, partition = TopicPartition(read, 0), TopicPartition(topic, 0)
    await environment.produce(before, ["a"])
    await environment.produce(partition, ["b"])
    async with environment.source() as source:
        source.assign(1, {before: 0})
        source.open(1, [before])
        await receive_values(source, 1, [before], 1)
        await log.until(CONNECTED)
        source.assign(2, {before: 1, partition: 0})
        source.open(2, [before, partition])
        await receive_values(source, 2, [partition], 1)
        lines = log.since_assigned()
    assert [line for line in lines if f"{topic} {UNKNOWN}" in line]
    requests = [line for line in lines if "Request metadata" in line]
    assert requests[0].endswith(BY_TIMER)
