"""Calls of a trio group and of its generations from another thread: refused, or passed on."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import GroupClosedError, UsageError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.status import Phase
from tests.group.harness import P0, harness

ANY_THREAD = {
    ConsumerGroup: {"health", "shutdown", "status"},
    Generation: {"emit", "lag", "transaction_metadata"},
}
"""The methods that say that any thread may call them."""

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "subscribe": (["others"],),
    "start_soon": (trio.sleep_forever,),
    "run": (trio.sleep_forever,),
    "seek": (P0, 0),
    "commit": ({P0: 0},),
    "commit_in_transaction": (object(), {P0: 0}),
}
"""What those others are called with that take arguments."""

METHODS = [
    (kind, name)
    for kind, free in ANY_THREAD.items()
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and name not in free
]


def in_a_thread(call: Callable[[], object]) -> BaseException | None:
    """Call a function in another thread, and return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            result = call()
            if isinstance(result, Coroutine):
                try:
                    result.send(None)
                finally:
                    result.close()
        except BaseException as error:  # noqa: BLE001 # it is returned
            raised.append(error)

    thread = threading.Thread(target=run, name="of the program")
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize(("kind", "name"), METHODS)
async def test_a_call_from_another_thread_is_refused(
    kind: type, name: str, autojump_clock: MockClock
) -> None:
    """The error names the thread and the way in, nothing has changed, and the group closes."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        owner = group if kind is ConsumerGroup else generation
        method = getattr(owner, name)
        error = in_a_thread(lambda: method(*ARGUMENTS.get(name, ())))
        assert isinstance(error, UsageError), error
        waits = "run" if inspect.iscoroutinefunction(method) else "run_sync"
        prefix = "group" if kind is ConsumerGroup else "generation"
        assert f"{prefix}.{name}() was called in thread 'of the program'" in str(error)
        assert f"call trio.from_thread.{waits}({prefix}.{name}, ...)" in str(error)
        assert generation.end is None
        assert not generation.streams
        assert group.subscription == ("topic",)
        await generation.commit({P0: 0})


async def test_another_thread_may_close_the_group(autojump_clock: MockClock) -> None:
    """shutdown() from any thread closes the group, also if it is called after the group's end."""
    async with harness() as here:
        async with here.group() as group:
            await group.next()
            assert in_a_thread(lambda: group.shutdown("a thread asked for it")) is None
            await trio.lowlevel.checkpoint()
            with pytest.raises(GroupClosedError, match="a thread asked for it"):
                await group.next()
        assert in_a_thread(group.shutdown) is None


def test_a_thread_may_close_a_group_whose_event_loop_has_ended() -> None:
    """shutdown() does nothing then."""
    groups: list[ConsumerGroup] = []

    async def main() -> None:
        async with harness() as here, here.group() as group:
            groups.append(group)
            await group.next()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert in_a_thread(groups[0].shutdown) is None


async def test_the_subscription_may_be_set_in_any_thread_before_the_group_is_entered(
    autojump_clock: MockClock,
) -> None:
    """Without an event loop there is no thread that it would belong to."""
    async with harness() as here:
        group = here.group()
        assert in_a_thread(lambda: group.subscribe(["others"])) is None
        assert group.subscription == ("others",)


async def test_a_forked_process_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has the parent's connections: what it would send, the parent's answer would be."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(UsageError, match=r"generation\.commit\(\) was called in a forked"):
                await generation.commit({P0: 0})
            with pytest.raises(UsageError, match=r"group\.next\(\) was called in a forked"):
                await group.next()
        await generation.commit({P0: 0})


async def test_the_health_in_a_forked_process(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says whose group that is, and not that the group has failed, which runs in the parent."""
    async with harness() as here, here.group() as group:
        await group.next()
        parent = os.getpid()
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            health = group.health()
        assert (health.live, health.status.phase) == (False, Phase.FORKED)
        assert f"this is a fork of process {parent}" in health.reasons[0]
        assert group.health().ready


@pytest.mark.parametrize("method", ["__anext__", "close", "aclose"])
async def test_a_stream_belongs_to_the_thread_of_the_event_loop(
    method: str, autojump_clock: MockClock
) -> None:
    """Another thread neither reads from it nor closes it, and its own task goes on reading."""
    async with harness() as here, here.group() as group:
        await here.append(2)
        generation = await group.next()
        stream = generation.records(max_records=1)
        await anext(stream)
        error = in_a_thread(getattr(stream, method))
        assert isinstance(error, UsageError), error
        named = "close" if method == "aclose" else method
        assert f"stream.{named}() was called in thread 'of the program'" in str(error)
        assert generation.streams == {stream}
        assert [message.offset() for message in await anext(stream)] == [1]


async def test_a_forked_process_reads_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a copy of what was fetched ahead, which its parent processes."""
    async with harness() as here, here.group() as group:
        await here.append(2)
        stream = (await group.next()).records(max_records=1)
        await anext(stream)
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(UsageError, match=r"stream\.__anext__\(\) was called in a forked"):
                await anext(stream)
        assert [message.offset() for message in await anext(stream)] == [1]


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_a_forked_process_does_not_leave_the_group_of_its_parent(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, in_a_task: bool
) -> None:
    """In the child the block ends by what the program raised, and no request is sent."""
    sent = 0

    async def in_the_child() -> None:
        nonlocal sent
        await trio.lowlevel.checkpoint()
        monkeypatch.setattr("os.getpid", lambda: -1)
        sent = len(here.requests)
        raise ValueError

    async with harness() as here:
        with pytest.raises((ValueError, ExceptionGroup)) as caught:
            async with here.group() as group:
                generation = await group.next()
                if in_a_task:
                    generation.start_soon(in_the_child)
                    await trio.sleep_forever()
                await in_the_child()
        assert isinstance(caught.value, ExceptionGroup) == in_a_task
        assert "UsageError" not in repr(caught.value)
        assert len(here.requests) == sent


async def test_a_group_that_was_not_entered_cannot_be_left(autojump_clock: MockClock) -> None:
    """It is refused, and nothing waits."""
    async with harness() as here:
        with pytest.raises(UsageError, match="is not open"):
            await here.group().__aexit__(None, None, None)
