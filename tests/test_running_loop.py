"""Exceptions of functions that call one library where the event loop of another one runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import trio

import kgroup
from kgroup import aio, threaded
from kgroup.functions import is_program_error
from kgroup.retry_policy import is_retried
from kgroup.running_loop import called_library, running_library, wrong_loop


@pytest.mark.parametrize("kind", [kgroup.ConsumerGroup, aio.ConsumerGroup, threaded.ConsumerGroup])
@pytest.mark.parametrize(
    ("library", "module", "function"),
    [
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ],
)
def test_a_group_on_replaced_threads_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[kgroup.GroupConfig], object],
    library: str,
    module: str,
    function: str,
) -> None:
    """Where gevent or eventlet has replaced what kgroup needs, the error says so; no wait hangs."""
    config = kgroup.GroupConfig(bootstrap_servers="h:1", group_id="g", topics=["t"])
    replaced = {"subprocess", "os"}
    patching = ModuleType(module)
    setattr(patching, function, replaced.__contains__)
    monkeypatch.setitem(sys.modules, module, patching)
    kind(config)  # what it has replaced is not needed
    replaced |= {"select", "socket"}
    with pytest.raises(kgroup.UsageError, match=f"{library} has replaced .*select and socket"):
        kind(config)


async def _group_of_asyncio() -> None:
    async with asyncio.TaskGroup():
        pass


async def _timeout_of_asyncio() -> None:
    async with asyncio.timeout(1):
        await asyncio.sleep(0.1)


async def _sleep_of_asyncio() -> None:
    await asyncio.sleep(0.1)


async def _yield_of_asyncio() -> None:
    await asyncio.sleep(0)


async def _queue_of_asyncio() -> None:
    await asyncio.Queue[int]().get()


async def _thread_of_asyncio() -> None:
    await asyncio.to_thread(print)


async def _nursery_of_trio() -> None:
    async with trio.open_nursery():
        pass


async def _timeout_of_trio() -> None:
    with trio.fail_after(1):
        await trio.sleep(0.1)


async def _sleep_of_trio() -> None:
    await trio.sleep(0.1)


async def _checkpoint_of_trio() -> None:
    await trio.lowlevel.checkpoint()


async def _event_of_trio() -> None:
    await trio.Event().wait()


async def _thread_of_trio() -> None:
    await trio.to_thread.run_sync(print)


OF_ASYNCIO = [
    _group_of_asyncio,
    _timeout_of_asyncio,
    _sleep_of_asyncio,
    _yield_of_asyncio,
    _queue_of_asyncio,
    _thread_of_asyncio,
]
OF_TRIO = [
    _nursery_of_trio,
    _timeout_of_trio,
    _sleep_of_trio,
    _checkpoint_of_trio,
    _event_of_trio,
    _thread_of_trio,
]


def test_trio_as_a_guest_of_asyncio() -> None:
    """Each library's task is known as its own, and a cancellation of asyncio as one."""

    async def in_trio() -> str | None:
        here = running_library()
        assert is_program_error(asyncio.CancelledError())
        await trio.lowlevel.checkpoint()
        assert running_library() == here
        return here

    async def in_asyncio() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            in_trio,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=done.set_result,
        )
        assert running_library() == "asyncio"  # trio's run has begun, and goes on in between
        assert not is_program_error(asyncio.CancelledError())
        assert (await done).unwrap() == "trio"

    asyncio.run(in_asyncio())


async def _said(fn: Callable[[], Awaitable[None]]) -> tuple[str | None, bool, str]:
    try:
        await fn()
    except Exception as error:  # noqa: BLE001
        return called_library(error), is_retried(error), wrong_loop(error)
    raise AssertionError


@pytest.mark.parametrize("fn", OF_ASYNCIO)
def test_calls_of_asyncio_in_trio(fn: Callable[[], Awaitable[None]]) -> None:
    """They are known by their texts, not retried, and the note names kgroup.aio."""
    called, retried, note = trio.run(_said, fn)
    assert (called, retried) == ("asyncio", False)
    assert "it called asyncio in trio's event loop" in note
    assert note.endswith("belong to kgroup.aio")


@pytest.mark.parametrize("fn", OF_TRIO)
def test_calls_of_trio_in_asyncio(fn: Callable[[], Awaitable[None]]) -> None:
    """Likewise, and the note names kgroup."""
    called, retried, note = asyncio.run(_said(fn))
    assert (called, retried) == ("trio", False)
    assert "it called trio in asyncio's event loop" in note
    assert note.endswith("belong to kgroup")


def test_a_thread_has_no_event_loop() -> None:
    """A plain function that calls either is no more retried; one in a group is found."""
    for call in (asyncio.get_running_loop, trio.current_time):
        with pytest.raises(RuntimeError) as caught:
            call()
        grouped = ExceptionGroup("both", [ValueError("x"), caught.value])
        assert not is_retried(grouped)
        assert "in a thread without an event loop" in wrong_loop(grouped)


def test_an_exception_that_wraps_it() -> None:
    """What it was raised from counts, and what it replaced, unless that is suppressed."""

    def call() -> None:
        raise RuntimeError("no running event loop")

    for wrap, library in ((True, "asyncio"), (False, "asyncio"), (None, None)):
        with pytest.raises(ValueError, match="own") as raised:
            try:
                call()
            except RuntimeError as error:
                if wrap is False:
                    raise ValueError("own")  # noqa: B904 # as functions do
                raise ValueError("own") from (error if wrap else None)
        assert called_library(raised.value) == library


def test_a_cause_that_is_false() -> None:
    """It counts as any other one does."""

    class EmptyError(RuntimeError):
        def __len__(self) -> int:
            return 0

    error = ValueError("own")
    error.__cause__ = EmptyError("no running event loop")
    assert called_library(error) == "asyncio"


async def _fetch() -> None:
    raise ConnectionError("the service is away")


def _by_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_fetch())


def _by_event_loop() -> None:
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(_fetch())
        finally:
            loop.close()


def _by_task() -> None:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        trio.run(_fetch)


@pytest.mark.parametrize("fn", [_by_running_loop, _by_event_loop, _by_task])
def test_a_function_that_looks_for_an_event_loop(fn: Callable[[], None]) -> None:
    """What it raises where there is none is retried, and gets no note about event loops."""
    with ThreadPoolExecutor(1) as thread:
        error = thread.submit(fn).exception()
    assert isinstance(error, ConnectionError)
    assert isinstance(error.__context__, RuntimeError)
    assert called_library(error) is None
    assert is_retried(error)
    assert wrong_loop(error) == ""


def test_other_errors() -> None:
    """Those of a database, or of the same classes, are retried and get no such note."""
    for error in (ValueError("no running event loop"), RuntimeError("x"), AttributeError("y")):
        assert called_library(error) is None
        assert is_retried(error)
        assert wrong_loop(error) == ""
