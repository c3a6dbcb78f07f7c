"""Streams of offsets: what they know of a log, and how they end. Beside the embedded broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.cluster import Cluster
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    NoOffsetError,
    NotOwnedError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import PartitionsNotRead
from kgroup.generation.offset_stream import OffsetStream
from kgroup.types import TopicPartition
from tests.group.harness import harness

TOPIC_0, TOPIC_1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


async def reset(
    offsets: OffsetStream,
    wrong: dict[TopicPartition, int],
    found: dict[TopicPartition, int],
) -> None:
    """Reset positions, and keep what is found."""
    offsets.reset(wrong, found.__setitem__)
    await offsets.wait_until_reset()


async def test_begin_end_and_first(autojump_clock: MockClock) -> None:
    """`begin` has the committed offset or the reset policy's; `end` and `first` are the log's."""
    async with harness(2) as here:
        await here.append(10, 0)
        await here.append(4, 1)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({TOPIC_0: 7}, beyond_read=True)
        async with here.group() as group:
            offsets = (await group.next()).offsets()
            assert offsets.partitions == {TOPIC_0, TOPIC_1}
            assert await offsets.begin() == {TOPIC_0: 7, TOPIC_1: 0}
            assert await offsets.end() == {TOPIC_0: 10, TOPIC_1: 4}
            assert await offsets.first() == {TOPIC_0: 0, TOPIC_1: 0}
            before = len(here.requests)
            await offsets.end()
            sent = [api for _, api, _ in here.requests[before:]]
            assert sent.count("list_offsets") == 1


async def test_partitions_of_an_offset_stream_count_as_read(autojump_clock: MockClock) -> None:
    """No other stream may read them meanwhile, and no warning says that they are not read."""
    async with harness(2) as here, here.group() as group:
        generation = await group.next()
        offsets = generation.offsets()
        with pytest.raises(UsageError, match="topic-0: another stream"):
            generation.records(TOPIC_0)
        with pytest.raises(NotOwnedError):
            generation.offsets(TopicPartition("topic", 2))
        await trio.sleep(60)
        assert not here.events_of(PartitionsNotRead)
        offsets.close()
        assert not offsets.running
        generation.records(TOPIC_0)


async def test_reset_of_an_offset_that_is_not_in_the_log(autojump_clock: MockClock) -> None:
    """The reset policy decides where to continue, and earlier offsets can then be committed."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({TOPIC_0: 9}, beyond_read=True)
            found: dict[TopicPartition, int] = {}
            await reset(generation.offsets(), {TOPIC_0: 9}, found)
            assert found == {TOPIC_0: 0}
            await generation.commit({TOPIC_0: 3})
        async with here.group(auto_offset_reset="error") as group:
            offsets = (await group.next()).offsets()
            with pytest.raises(OffsetOutOfRangeError, match="offset 3 of topic-0 is not in"):
                await reset(offsets, {TOPIC_0: 3}, {})


async def test_resets_that_are_far_between_are_immediate(autojump_clock: MockClock) -> None:
    """No record tells this stream that the one before was of use."""
    async with harness() as here, here.group() as group:
        await here.append(10)
        offsets = (await group.next()).offsets()
        for _ in range(20):
            began = trio.current_time()
            await reset(offsets, {TOPIC_0: 99}, {})
            assert trio.current_time() - began < 0.1
            await trio.sleep(60)


async def test_resets_of_which_one_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller learns what was found beside the error."""
    list_offsets = Cluster.list_offsets_with_epochs
    refusal = broker_error(Request.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic-1")

    async def refuse_one(self: Cluster, *args: Any, **options: Any) -> dict[TopicPartition, Any]:
        answers = await list_offsets(self, *args, **options)
        return {name: refusal if name == TOPIC_1 else answers[name] for name in answers}

    async with harness(2) as here, here.group() as group:
        await here.append(10)
        offsets = (await group.next()).offsets()
        monkeypatch.setattr(Cluster, "list_offsets_with_epochs", refuse_one)
        found: dict[TopicPartition, int] = {}
        with pytest.raises(AuthorizationError):
            await reset(offsets, {TOPIC_0: 99, TOPIC_1: 99}, found)
        assert found == {TOPIC_0: 0}


async def test_a_call_that_is_given_up_during_a_search(autojump_clock: MockClock) -> None:
    """The search goes on, and what it finds is not lost; the end cancels it."""
    async with harness() as here, here.group(request_timeout=3.0) as group:
        await here.append(10)
        generation = await group.next()
        offsets = generation.offsets()
        here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=3)
        found: dict[TopicPartition, int] = {}
        while not found:
            with trio.move_on_after(0.01):
                await reset(offsets, {TOPIC_0: 99}, found)
        assert found == {TOPIC_0: 0}
        assert len(here.requests_for("list_offsets")) < 10
        here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None)
        group.shutdown()
        with pytest.raises(StaleGenerationError, match="Continue with the next"):
            await reset(offsets, {TOPIC_0: 99}, found)


async def test_begin_without_any_offset(autojump_clock: MockClock) -> None:
    """With auto_offset_reset=error the program gets the error."""
    async with harness() as here, here.group(auto_offset_reset="error") as group:
        with pytest.raises(NoOffsetError):
            await (await group.next()).offsets().begin()


async def test_confirmed_after_the_end(autojump_clock: MockClock) -> None:
    """`confirmed` is true while the generation runs, and false once its end has begun."""
    async with harness() as here, here.group() as group:
        offsets = (await group.next()).offsets()
        assert await offsets.confirmed()
        group.shutdown()
        assert not await offsets.confirmed()


async def test_working_for_too_long(autojump_clock: MockClock) -> None:
    """``max_processing_time`` counts from the moment the program reports that it works."""
    async with harness() as here, here.group(max_processing_time=5.0) as group:
        generation = await group.next()
        offsets = generation.offsets()
        await trio.sleep(20)
        assert generation.end is None
        offsets.hold(working=True)
        await trio.sleep(3)
        offsets.hold(working=False)
        await trio.sleep(3)
        assert generation.end is None
        offsets.hold(working=True)
        await generation.ending.wait()
        assert offsets.held_for == pytest.approx(5.0, abs=1.5)
        assert "5" in str(generation.end)
