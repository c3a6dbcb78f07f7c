"""Async functions of the settings, while asyncio's loop is blocked and while a group closes."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

import kgroup
from kgroup import aio
from kgroup.status import Phase
from kgroup.types import TopicPartition
from tests.aio.secured import PASSWORD, USER, secured, secured_broker
from tests.aio.test_group import Here, forever, in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON

embedded = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)


def test_a_blocked_loop_stops_no_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that were lost log in with what was looked up last, so that heartbeats go on."""
    monkeypatch.setattr("kgroup.wire.logins.PATIENCE", 0.1)

    async def credentials() -> kgroup.Credentials:
        await asyncio.sleep(0)
        return kgroup.Credentials(USER, PASSWORD)

    with secured_broker() as broker:
        config = broker.harness.config(security=secured(credentials))

        async def main() -> None:
            async with aio.ConsumerGroup(config) as group:
                generation = await group.next()
                broker.cut()
                before, renewals = generation.lease, 0
                while renewals < 3:
                    time.sleep(0.01)  # noqa: ASYNC251 # it blocks the loop
                    lease = generation.lease
                    assert lease > 0
                    renewals += lease > before
                    before = lease
                assert generation.end is None

        in_asyncio(main)


def closed_while_blocked(group: aio.ConsumerGroup, *, runs: bool = True) -> None:
    """Close a group, and block the loop until it has left.

    Args:
        group: the group.
        runs: whether it first has to run a function of its settings in the loop.
    """
    while runs and not group._program_tasks().running:
        time.sleep(0.001)
    group.shutdown("the loop is blocked", promptly=True)
    while group.status().phase is not Phase.CLOSED:
        time.sleep(0.001)


@embedded
def test_the_block_waits_for_what_it_cancels(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled function cleans up before the block ends; what it then raises is logged."""
    here = Here(kafka)
    begun, cleaned = asyncio.Event(), []

    async def starts(_: object) -> dict[TopicPartition, int]:
        begun.set()
        try:
            await forever()
        finally:
            await asyncio.sleep(0.1)
            cleaned.append(True)
            raise KeyError("in the clean-up")

    async def main() -> None:
        async with here.group(starts=starts) as group:
            waiting = asyncio.create_task(anext(group))
            await begun.wait()
            closed_while_blocked(group)
            assert not cleaned
            with pytest.raises(StopAsyncIteration):
                await waiting
        assert cleaned

    with caplog.at_level(logging.ERROR, "kgroup"):
        in_asyncio(main)
    (record,) = (one for one in caplog.records if "after it was cancelled" in one.message)
    assert starts.__qualname__ in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


@embedded
def test_a_function_that_goes_on_after_its_cancellation(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The block waits for it, and one warning names it and shows where it waits."""
    monkeypatch.setattr("kgroup.aio.tasks.GRACE", 0.1)
    here = Here(kafka)
    begun, cancellations = asyncio.Event(), 0

    async def starts(_: object) -> dict[TopicPartition, int]:
        nonlocal cancellations
        begun.set()
        while cancellations < 4:
            try:
                await forever()
            except asyncio.CancelledError:
                cancellations += 1
        return {}

    async def main() -> None:
        async with here.group(starts=starts) as group:
            waiting = asyncio.create_task(anext(group))
            await begun.wait()
            group.shutdown(promptly=True)
            with pytest.raises(StopAsyncIteration):
                await waiting
        assert cancellations == 4

    with caplog.at_level(logging.WARNING, "kgroup"):
        in_asyncio(main)
    (record,) = (one for one in caplog.records if "still running" in one.message)
    assert starts.__qualname__ in record.message
    assert "await forever()" in record.message


@embedded
def test_a_function_that_goes_on_is_no_work_of_an_idle_member(kafka: Kafka) -> None:
    """The member has nothing of a generation that still runs, so it is idle."""
    here = Here(kafka)
    begun, released = asyncio.Event(), asyncio.Event()

    async def starts(_: object) -> dict[TopicPartition, int]:
        begun.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return {}

    async def main() -> None:
        async with here.group(starts=starts) as group:
            waiting = asyncio.create_task(anext(group))
            await begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            group.subscribe(["another"])  # so that nothing needs the function any more
            while group.status().phase is not Phase.IDLE:  # noqa: ASYNC110 # no event says so
                await asyncio.sleep(0.01)
            runs = bool(group._program_tasks().running)
            status = group.status()
            released.set()  # before the test fails, because the block waits for the function
        assert runs
        assert (status.phase, status.detail) == (Phase.IDLE, "")

    in_asyncio(main)


def is_closed(coroutines: list[Coroutine[Any, Any, Any]]) -> bool:
    """Whether there is a coroutine that was closed or has ended."""
    return [inspect.getcoroutinestate(one) for one in coroutines] == [inspect.CORO_CLOSED]


@embedded
@pytest.mark.parametrize("late", [False, True])
def test_a_coroutine_that_nobody_needs(kafka: Kafka, late: bool) -> None:
    """What a plain function returned is closed, so that Python does not warn, if the group closes.

    asyncio's loop was blocked, or the function was still running in its thread.
    """
    here = Here(kafka)
    over = threading.Event()
    coroutines: list[Coroutine[Any, Any, dict[TopicPartition, int]]] = []

    async def load() -> dict[TopicPartition, int]:
        raise AssertionError("it is called")

    def starts(_: object) -> Any:
        begun.set()
        if late:
            over.wait(SOON)
        coroutines.append(load())
        return coroutines[0]

    begun = threading.Event()

    async def main() -> None:
        async with here.group(starts=starts) as group:
            waiting = asyncio.create_task(anext(group))
            await asyncio.sleep(0)
            begun.wait(SOON)  # it blocks the loop, which must not run the coroutine
            closed_while_blocked(group, runs=not late)
            over.set()
            with pytest.raises(StopAsyncIteration):
                await waiting
        while late and not is_closed(coroutines):  # noqa: ASYNC110 # the thread does not say so
            await asyncio.sleep(0)
        assert is_closed(coroutines)

    in_asyncio(main)
