"""A record source that broke: an event reports it, and the next generation reads."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.config import GroupConfig
from kgroup.errors import FetchError
from kgroup.events import RecordSourceFailed
from kgroup.group import ConsumerGroup
from kgroup.interfaces import RecordSource
from kgroup.records.buffered_source import BufferedSource
from kgroup.records.fetcher import FetcherBroken
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import P0, P1, harness, values


async def test_the_next_generation_reads(autojump_clock: MockClock) -> None:
    """Every stream of the generation fails, no stream of the next one does; an event says why."""
    async with harness(2) as here:
        await here.append(3)
        runtime = memory_runtime(here.broker)
        made: list[BufferedSource] = []

        def source(
            config: GroupConfig, on_fault: Callable[[TopicPartition | None, str], None]
        ) -> RecordSource:
            source = runtime.record_source(config, on_fault)
            assert isinstance(source, BufferedSource)
            made.append(source)
            return source

        group = ConsumerGroup(
            here.config(),
            runtime=attrs.evolve(runtime, record_source=source),
            on_event=here.events.append,
        )
        async with group:
            first = await group.next()
            begun = first.records(P0, max_records=1)
            batch = await anext(begun)
            await first.commit({P0: batch.next_offset})
            made[0].deliver([FetcherBroken("as scripted")])
            for stream in (first.records(P1), begun):
                with pytest.raises(FetchError, match="as scripted; the next generation"):
                    await anext(stream)
            assert here.events_of(RecordSourceFailed) == []
            await here.broker.add_partitions("topic", 3)
            second = await group.next()
            assert values((await anext(second.records(P0))).messages) == [1, 2]
        (fault,) = here.events_of(RecordSourceFailed)
        assert "another one takes its place" in str(fault)
    assert len(made) == 1


async def test_a_source_that_lost_a_broker_lets_a_member_request_the_brokers(
    autojump_clock: MockClock,
) -> None:
    """A fault of no partition does, and none of a partition, also in a quiet follower."""
    async with harness(2) as here, here.group() as leader:
        await leader.next()
        runtime = memory_runtime(here.broker)
        report: Callable[[TopicPartition | None, str], None] | None = None

        def source(
            config: GroupConfig, on_fault: Callable[[TopicPartition | None, str], None]
        ) -> RecordSource:
            nonlocal report
            report = on_fault
            return runtime.record_source(config, on_fault)

        group = ConsumerGroup(
            here.config(client_id="of its own"),  # and so no poll of the leader
            runtime=attrs.evolve(runtime, record_source=source),
        )
        async with trio.open_nursery() as nursery, group:
            nursery.start_soon(leader.next)
            await group.next()
            await trio.sleep(10)
            assert report is not None
            for partition, requests in ((P0, 0), (None, 1)):
                before = here.now
                report(partition, "_TRANSPORT: as scripted")
                await trio.sleep(5)
                sent = here.requests_for("metadata", since=before)
                assert len([one for _, one in sent if not one.topics]) == requests
            nursery.cancel_scope.cancel()
