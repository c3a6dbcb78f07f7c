"""librdkafka on logs that were truncated, or that hold a malformed batch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import crc32c
import pytest
import trio

from kgroup import broker
from kgroup.broker.batches import HEADER
from kgroup.broker.embedded_cluster import EmbeddedCluster
from kgroup.config import GroupConfig
from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.events import Event, OffsetReset
from kgroup.generation.record_stream import RecordStream
from kgroup.group import ConsumerGroup
from kgroup.records.librdkafka import CONSUMERS, Consumers, LibrdkafkaSource
from kgroup.testing import admin
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.broker.record_batches import append, batch
from tests.records import environments
from tests.records.environments import PATIENCE, receive_values, value_of

P = TopicPartition("t", 0)
CUT, END = 50, 100
OLD = [b"old-%d" % offset for offset in range(END)]
AT_ONCE = {"group.initial.rebalance.delay.ms": 0}


def numbered(count: int) -> list[str]:
    """So many records, as they are in the log after it was cut."""
    return [f"new-{offset}" for offset in range(CUT, CUT + count)]


def elect_uncleanly(cluster: EmbeddedCluster, values: list[str]) -> None:
    """Let the other broker lead, whose log ended at ``CUT`` and has got these records since."""
    log, replicas = cluster._log_and_replicas(P)
    log._batches = [one for one in log._batches if one.header.base_offset < CUT]
    log._size = sum(len(one.data) for one in log._batches)
    log._end = CUT
    cluster.cluster.live_brokers.move_leader(replicas, 3 - replicas.leader)
    log.epochs.begin(replicas.epoch, CUT)
    append(log, batch(*(value.encode() for value in values)))


@asynccontextmanager
async def old_log() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers with a log that ends at ``END``, and can be cut at ``CUT``."""
    async with broker.serve_cluster(2, settings=AT_ONCE) as cluster:
        await cluster.create_topic("t")
        for at in (0, CUT):
            await cluster.append("t", 0, OLD[at : at + CUT])
        yield cluster


def config_of(cluster: EmbeddedCluster, rule: str, **settings: Any) -> GroupConfig:
    """The settings of a member that reads the log."""
    return GroupConfig(
        group_id="g",
        bootstrap_servers=cluster.bootstrap_servers,
        topics=["t"],
        auto_offset_reset=rule,
        **settings,
    )


async def read(stream: RecordStream, wanted: int) -> list[str]:
    """The values of so many records."""
    values: list[str] = []
    while len(values) < wanted:
        values += value_of(await anext(stream))
    return values


@pytest.mark.parametrize("rule", ["earliest", "latest", "error"])
@pytest.mark.parametrize("count", [30, 80], ids=["shorter than before", "longer"])
async def test_reading_goes_on_where_a_log_was_cut(rule: str, count: int) -> None:
    """No record of the other log is skipped, nor by a restart; with ``error`` the program seeks."""
    events: list[Event] = []
    async with old_log() as cluster:
        config = config_of(cluster, rule, starts=lambda _: {P: 0})
        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(config, on_event=events.append) as group:
                generation = await group.next()
                stream = generation.records()
                assert await read(stream, END) == [value.decode() for value in OLD]
                await generation.commit({P: END})
                elect_uncleanly(cluster, numbered(count))
                if rule == "error":
                    with pytest.raises(OffsetOutOfRangeError, match="truncated to") as caught:
                        await anext(stream)
                    assert (caught.value.offset, caught.value.divergent_offset) == (END, CUT)
                    generation.seek(P, CUT)
                assert await read(stream, count) == numbered(count)
                if rule != "error":
                    assert await cluster.committed("g") == {P: OffsetAndMetadata(CUT)}
                await generation.commit({P: CUT + count})
        resets = [event for event in events if isinstance(event, OffsetReset)]
        assert [(event.partition, event.offset, event.skipped) for event in resets] == (
            [] if rule == "error" else [(P, CUT, True)]
        )


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_log_that_was_cut_below_a_latest_start(restarts: bool) -> None:
    """All of the new log is read, also if no record had been read, and in another process."""
    events: list[Event] = []
    async with old_log() as cluster:
        config = config_of(cluster, "latest")
        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(config, on_event=events.append) as group:
                generation = await group.next()
                assert generation.start_offsets == {P: END}
                stream = generation.records()
                if not restarts:
                    elect_uncleanly(cluster, numbered(80))
                    assert await read(stream, 80) == numbered(80)
            if restarts:
                elect_uncleanly(cluster, numbered(80))
                async with ConsumerGroup(config, on_event=events.append) as group:
                    generation = await group.next()
                    assert await read(generation.records(), 80) == numbered(80)
        resets = [event for event in events if isinstance(event, OffsetReset)]
        assert [(one.offset, one.skipped) for one in resets] == [(END, False), (CUT, True)]


@pytest.mark.parametrize("count", [30, 80], ids=["shorter than before", "longer"])
async def test_a_log_that_was_cut_before_its_stream_was_opened(count: int) -> None:
    """librdkafka knows the new leader by then, and is made to compare the log all the same."""
    async with old_log() as cluster:
        other = TopicPartition("t", 1)
        await trio.to_thread.run_sync(admin.add_partitions, cluster.bootstrap_servers, "t", 2)
        async with environments.Environment(
            cluster.bootstrap_servers, LibrdkafkaSource
        ).source() as source:
            source.assign(1, {P: END, other: 0}, {P: 0}, [P, other])
            source.open(1, [other])
            for _ in range(2):
                await cluster.append("t", 1, [b"v"])
                assert len(await source.receive(1, [other], 10)) == 1
                if cluster._log_and_replicas(P)[1].epoch:
                    break
                elect_uncleanly(cluster, numbered(count))
                await cluster.move_leader(other, 3 - (cluster.leader_of(other) or 0))
            source.open(1, [P])
            with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 50"):
                await source.receive(1, [P], 10)
            source.seek(1, P, CUT)
            values = await receive_values(source, 1, [P], count)
            assert values[P] == numbered(count)


@pytest.mark.parametrize("count", [30, 80], ids=["shorter than before", "longer"])
async def test_a_log_that_was_cut_while_another_group_read_it_further_back(count: int) -> None:
    """They share a Consumer: the one ahead gets the error, and the other one reads on."""
    CONSUMERS.set(Consumers(most_own=0))
    async with old_log() as cluster:
        here = environments.Environment(cluster.bootstrap_servers, LibrdkafkaSource)
        async with here.source() as ahead, here.source() as behind:
            ahead.assign(1, {P: END - 1}, {P: 0}, [P])
            ahead.open(1, [P])
            assert len(await ahead.receive(1, [P], 10)) == 1
            behind.assign(1, {P: CUT - 5}, {}, [P])
            elect_uncleanly(cluster, numbered(count))
            behind.open(1, [P])
            values = await receive_values(behind, 1, [P], count + 5)
            assert values[P][5:] == numbered(count)
            with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 50"):
                await ahead.receive(1, [P], 10)


@pytest.mark.parametrize("rule", ["earliest", "latest", "error"])
@pytest.mark.parametrize("count", [30, 80], ids=["shorter than before", "longer"])
async def test_a_log_that_was_cut_between_two_processes(rule: str, count: int) -> None:
    """The commit's leader epoch shows it, so the next process skips no record of the new log."""
    events: list[Event] = []
    async with old_log() as cluster:
        config = config_of(cluster, rule)
        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(
                attrs.evolve(config, starts=lambda _: {P: 0}), on_event=events.append
            ) as group:
                generation = await group.next()
                assert await read(generation.records(), END) == [value.decode() for value in OLD]
                await generation.commit({P: END})
            assert await cluster.committed("g") == {P: OffsetAndMetadata(END, 0)}
            elect_uncleanly(cluster, numbered(count))
            async with ConsumerGroup(config, on_event=events.append) as group:
                generation = await group.next()
                stream = generation.records()
                if rule == "error":
                    with pytest.raises(OffsetOutOfRangeError, match="ends at 50") as caught:
                        await anext(stream)
                    assert (caught.value.offset, caught.value.divergent_offset) == (END, CUT)
                    generation.seek(P, CUT)
                else:
                    assert generation.start_offsets == {P: CUT}
                    assert await cluster.committed("g") == {P: OffsetAndMetadata(CUT, 0)}
                assert await read(stream, count) == numbered(count)
                await generation.commit({P: CUT + count})
            assert await cluster.committed("g") == {P: OffsetAndMetadata(CUT + count, 1)}
        resets = [event for event in events if isinstance(event, OffsetReset)]
        assert [(event.partition, event.offset, event.skipped) for event in resets] == (
            [] if rule == "error" else [(P, CUT, True)]
        )


async def test_a_log_that_was_cut_is_not_forgotten_before_a_commit() -> None:
    """Each generation of the member starts where it was cut, until the program has committed."""
    async with old_log() as cluster:
        config = GroupConfig(
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            topics=["t"],
            commit_initial_position=False,
        )
        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(config) as group:
                generation = await group.next()
                await read(generation.records(), END)
                await generation.commit({P: END})
            elect_uncleanly(cluster, numbered(80))
            async with ConsumerGroup(config) as group:
                for _ in range(2):
                    generation = await group.next()
                    assert generation.start_offsets == {P: CUT}
                    assert await read(generation.records(), 80) == numbered(80)
                    generation.start_soon(trio.lowlevel.checkpoint)  # its return ends it
                generation = await group.next()
                await read(generation.records(), 80)
                await generation.commit({P: CUT + 80})
            assert await cluster.committed("g") == {P: OffsetAndMetadata(CUT + 80, 1)}


async def test_a_malformed_batch_is_an_error_and_no_record_comes_twice() -> None:
    """What librdkafka makes of a batch with a right CRC is not handed out if it goes back."""
    async with broker.serve(settings=AT_ONCE) as running:
        await running.create_topic("t")
        for first in (0, 5):
            await running.append("t", 0, [b"%027d" % at for at in range(first, first + 5)])
        log, _ = running.cluster.topics.log_and_replicas("t", 0)
        data = bytearray(log._batches[1].data)
        second = HEADER.size + 1 + (data[HEADER.size] >> 1)
        data[second] = 250  # the second record's length, as a varint of more than one byte
        data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
        object.__setattr__(log._batches[1], "data", bytes(data))
        async with environments.embedded(running).source() as source:
            source.assign(1, {P: 0})
            source.open(1, [P])
            offsets: list[int] = []
            with pytest.raises(FetchError, match=r"offset \d came where 6 was next"):
                while True:
                    offsets += [m.offset() for m in (await source.receive(1, [P], 10)).messages]
            assert offsets == list(range(6))
