"""LibrdkafkaSource while brokers stop and start."""

from __future__ import annotations

import socket
import threading

import pytest
import trio

from kgroup import broker
from kgroup.config import GroupConfig
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.types import TopicPartition
from tests.records import environments
from tests.records.environments import PATIENCE, receive_values


async def test_a_broker_that_is_down_is_reported_once_and_waited_for() -> None:
    """While the broker is down each kind of fault is reported once; then reading resumes."""
    async with broker.serve() as running:
        environment = environments.embedded(running)
        partition = TopicPartition(await environment.topic(), 0)
        await environment.produce(partition, ["before"])
        async with environment.source() as source:
            source.assign(1, {partition: 0})
            source.open(1, [partition])
            assert await receive_values(source, 1, [partition], 1) == {partition: ["before"]}
            await running.stop()
            await environment.fault_reported.wait()
            await running.start()
            await running.append(partition.topic, 0, [b"after"])
            assert await receive_values(source, 1, [partition], 1) == {partition: ["after"]}
    kinds = [reason.split(":")[0] for _, reason in environment.faults]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= {"_ALL_BROKERS_DOWN", "_TRANSPORT"}


async def test_the_source_closes_in_time_without_any_broker(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The source reports the fault, prints nothing, and leaves no thread."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        reported: list[str] = []
        heard = trio.Event()

        def hear(_: TopicPartition | None, reason: str) -> None:
            reported.append(reason)
            heard.set()

        config = GroupConfig(group_id="alone", bootstrap_servers=address, topics=["t"])
        with trio.fail_after(PATIENCE):
            async with LibrdkafkaSource(config, hear) as source:
                source.assign(1, {TopicPartition("t", 0): 0})
                source.open(1, [TopicPartition("t", 0)])
                await heard.wait()
    assert "did not end" not in reported[-1]
    assert "kgroup-records-alone" not in {thread.name for thread in threading.enumerate()}
    assert capfd.readouterr() == ("", "")


async def test_in_a_forked_process_the_source_waits_for_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child does not have the thread, so nothing would end it, and there is no fault."""
    reported: list[str] = []
    config = GroupConfig(group_id="forked", bootstrap_servers="127.0.0.1:1", topics=["t"])
    with monkeypatch.context() as child:
        async with LibrdkafkaSource(config, lambda _, reason: reported.append(reason)) as source:
            source.assign(1, {TopicPartition("t", 0): 0})
            child.setattr("os.getpid", lambda: -1)
    (thread,) = (one for one in threading.enumerate() if one.name == "kgroup-records-forked")
    assert not any("did not end" in reason for reason in reported)
    source._thread.end()  # as the parent does
    await trio.to_thread.run_sync(thread.join)
