"""Ctrl-C while a block is entered or left, and blocks that cannot be entered: nothing stays."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import kgroup
from kgroup import aio
from kgroup.background import event_loop
from kgroup.background import group as background_group
from kgroup.background.event_loop import BackgroundLoop
from kgroup.background.flag import Flag
from kgroup.background.group import BackgroundGroup, GroupTwin
from kgroup.errors import ConfigError, GroupClosedError, UsageError
from kgroup.event_file import EventFile
from kgroup.status import Phase
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup
from tests.brokers import Kafka
from tests.threaded.harness import SOON, Harness, thread, wait

NOWHERE = Kafka("nobody", "127.0.0.1:1")


def interrupt_a_wait(patch: pytest.MonkeyPatch, number: int, *, early: bool) -> None:
    """Let one of the waits for a background loop be interrupted.

    Args:
        patch: makes the changes.
        number: which of the waits of this thread.
        early: whether the loop begins only after that; otherwise it has begun before.
    """
    waits = 0
    own = threading.get_ident()
    interrupted = threading.Event()
    wait_for, run_main = Flag.wait, BackgroundLoop._run_main

    def wait_or_raise(flag: Flag, timeout: float | None = None) -> bool:
        nonlocal waits
        # An earlier test may have left a thread that waits, too.
        waits += threading.get_ident() == own
        if threading.get_ident() != own or waits != number:
            return wait_for(flag, timeout)
        if not early:
            wait_for(flag, SOON)
        interrupted.set()
        raise KeyboardInterrupt

    async def begin_late(loop: BackgroundLoop) -> None:
        # The first loop of a shared thread is the host, for which the first wait is.
        if early and number == 1:
            wait(interrupted)
        await run_main(loop)

    patch.setattr(Flag, "wait", wait_or_raise)
    patch.setattr(BackgroundLoop, "_run_main", begin_late)


def enter(group: ConsumerGroup) -> None:
    """Enter the block of a threaded group."""
    with group:
        pass


def enter_in_asyncio(group: aio.ConsumerGroup) -> None:
    """Enter the block of a group for asyncio."""

    async def main() -> None:
        async with group:
            pass

    asyncio.run(main())


def enter_in_trio(group: kgroup.ConsumerGroup) -> None:
    """Enter the block of a group for trio."""

    async def main() -> None:
        async with group:
            pass

    trio.run(main)


each_kind = pytest.mark.parametrize(
    ("enters", "kind"),
    [
        (enter, ConsumerGroup),
        (enter_in_asyncio, aio.ConsumerGroup),
        (enter_in_trio, kgroup.ConsumerGroup),
    ],
)
"""A test of each of the three groups, and how to enter it."""

each_kind_with_a_thread = pytest.mark.parametrize(
    ("enters", "kind"), [(enter, ConsumerGroup), (enter_in_asyncio, aio.ConsumerGroup)]
)
"""A test of the two groups that have a background thread."""


def threads() -> set[threading.Thread]:
    """kgroup's threads."""
    return {one for one in threading.enumerate() if one.name.startswith("kgroup-")}


def wait_for_end_of_others(before: set[threading.Thread]) -> None:
    """Wait until there are no other threads of kgroup's than these."""
    deadline = time.monotonic() + SOON
    while left := threads() - before:
        for one in left:
            with suppress(RuntimeError):  # it is just being started, by a thread that ends too
                one.join(SOON)
        assert time.monotonic() < deadline, left


PLACES = [
    pytest.param(enter, ConsumerGroup, {"on_event": print}, 1, id="own thread"),
    pytest.param(enter, ConsumerGroup, {}, 1, id="host of the shared thread"),
    pytest.param(enter, ConsumerGroup, {}, 2, id="shared thread"),
    pytest.param(enter_in_asyncio, aio.ConsumerGroup, {}, 2, id="asyncio"),
]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(("enters", "kind", "own", "number"), PLACES)
def test_an_interrupt_while_a_block_is_entered(
    monkeypatch: pytest.MonkeyPatch,
    enters: Callable[[Any], None],
    kind: Callable[..., Any],
    own: dict[str, Any],
    number: int,
    early: bool,
) -> None:
    """No thread stays, another entry is refused, and another group can be entered."""
    before = threads()
    config = Harness(NOWHERE).config(close_timeout=1.0)
    group = kind(config, **own)
    with monkeypatch.context() as patch:
        interrupt_a_wait(patch, number, early=early)
        with pytest.raises(KeyboardInterrupt):
            enters(group)
        wait_for_end_of_others(before)
    with pytest.raises(UsageError, match="entered only once"):
        enters(group)
    enters(kind(config, **own))


@pytest.mark.parametrize("last", ["start", "_entered"])
@pytest.mark.parametrize(("enters", "kind", "own"), [place.values[:3] for place in PLACES[1:]])
def test_an_interrupt_after_the_thread_has_started(
    monkeypatch: pytest.MonkeyPatch,
    enters: Callable[[Any], None],
    kind: Callable[..., Any],
    own: dict[str, Any],
    last: str,
) -> None:
    """The block is not left then, and no thread stays for it, nor an entry for the exit."""
    before, open_before = threads(), set(background_group._OPEN)
    owner = BackgroundGroup if last == "start" else GroupTwin
    done = getattr(owner, last)

    def interrupted(group: Any) -> None:
        done(group)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, last, interrupted)
    with pytest.raises(KeyboardInterrupt):
        enters(kind(Harness(NOWHERE).config(close_timeout=1.0), **own))
    wait_for_end_of_others(before)
    assert set(background_group._OPEN) == open_before


def test_an_interrupt_after_the_shared_thread_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that no group shares does not stay."""
    before = threads()
    start = BackgroundLoop.start

    def interrupted(loop: BackgroundLoop) -> None:
        start(loop)
        raise KeyboardInterrupt

    monkeypatch.setattr(BackgroundLoop, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        event_loop._host()
    wait_for_end_of_others(before)


def test_an_interrupt_between_the_shared_thread_and_its_first_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that no group shares does not stay."""
    before = threads()

    def interrupt(loop: BackgroundLoop, fn: Callable[[], object]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BackgroundLoop, "run_sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        enter(ConsumerGroup(Harness(NOWHERE).config()))
    wait_for_end_of_others(before)


def test_a_block_that_is_entered_in_the_shared_thread() -> None:
    """It is refused, because it would wait for itself; another thread can then enter the group."""
    config = Harness(NOWHERE).config(close_timeout=1.0)
    group = ConsumerGroup(config)
    with ConsumerGroup(config) as other:
        for _ in range(2):
            with pytest.raises(UsageError, match="would wait for that very thread"):
                other._loop.run_sync(partial(enter, group))
    enter(group)


@pytest.mark.parametrize("own", [{}, {"on_event": print}], ids=["shared thread", "own thread"])
@each_kind_with_a_thread
def test_a_group_that_was_made_before_a_fork(
    monkeypatch: pytest.MonkeyPatch,
    enters: Callable[[Any], None],
    kind: Callable[..., Any],
    own: dict[str, Any],
) -> None:
    """Its block is refused in the child, where nothing could end it, and not in the parent."""
    parent, before = os.getpid(), threads()
    group = kind(Harness(NOWHERE).config(close_timeout=1.0), **own)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(UsageError, match="make a ConsumerGroup in each process"):
            enters(group)
        health = group.health()
        assert (health.live, health.status.phase) == (False, Phase.FORKED)
        assert f"this is a fork of process {parent}" in health.reasons[0]
    assert not threads() - before
    assert group.status().phase is Phase.NOT_ENTERED
    enters(group)


@each_kind
def test_a_group_that_two_threads_enter_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    enters: Callable[[Any], None],
    kind: Callable[..., Any],
) -> None:
    """The second one is refused, and the first one's block is not disturbed."""
    config = Harness(NOWHERE).config(close_timeout=1.0, events_to=str(tmp_path / "events"))
    group, is_opening, refused = kind(config), threading.Event(), threading.Event()
    file_open = EventFile.open

    def opened_slowly(file: EventFile) -> None:
        if not is_opening.is_set():
            is_opening.set()
            wait(refused)
        file_open(file)

    monkeypatch.setattr(EventFile, "open", opened_slowly)

    def second() -> None:
        wait(is_opening)
        try:
            with pytest.raises(UsageError, match="entered only once"):
                enters(group)
        finally:
            refused.set()

    with thread(second):
        enters(group)


@each_kind_with_a_thread
def test_an_interrupt_just_after_the_file_of_events_was_opened(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    enters: Callable[[Any], None],
    kind: Callable[..., Any],
) -> None:
    """The file is closed, and the group can be entered later."""
    config = Harness(NOWHERE).config(close_timeout=1.0, events_to=str(tmp_path / "events"))
    group = kind(config)
    file_open = EventFile.open

    def interrupted(file: EventFile) -> None:
        file_open(file)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EventFile, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            enters(group)
    assert group._group.event_file._file is None
    enters(group)


@each_kind
def test_a_group_whose_file_of_events_cannot_be_opened(
    tmp_path: Path, enters: Callable[[Any], None], kind: Callable[..., Any]
) -> None:
    """Its entry is refused, and once the file can be opened, the group can be entered."""
    folder = tmp_path / "missing"
    group = kind(Harness(NOWHERE).config(close_timeout=1.0, events_to=str(folder / "events")))
    with pytest.raises(ConfigError, match="events_to"):
        enters(group)
    folder.mkdir()
    enters(group)


def test_an_asyncio_group_whose_entry_is_refused(tmp_path: Path) -> None:
    """It is not open: its calls wait for nothing, and it can be entered later."""
    folder = tmp_path / "missing"
    config = Harness(NOWHERE).config(close_timeout=1.0, events_to=str(folder / "events"))
    group = aio.ConsumerGroup(config)

    async def main() -> None:
        async with asyncio.timeout(SOON):
            with pytest.raises(ConfigError, match="events_to"):
                await group.__aenter__()
            await group.aclose()
            for call in (group.next, group.wait_closed, partial(group.__aexit__, None, None, None)):
                with pytest.raises(UsageError, match="is not open"):
                    await call()
            folder.mkdir()
            async with group:
                pass

    asyncio.run(main())


@pytest.mark.parametrize("own", [{}, {"on_event": print}], ids=["shared thread", "own thread"])
def test_an_asyncio_group_for_which_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, Any]
) -> None:
    """Its calls wait for nothing."""
    group = aio.ConsumerGroup(Harness(NOWHERE).config(), **own)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with asyncio.timeout(SOON):
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(RuntimeError, match="new thread"):
                    await group.__aenter__()
            await group.aclose()
            await group.wait_closed()
            with pytest.raises(GroupClosedError):
                await group.next()

    asyncio.run(main())


def test_a_group_whose_event_loop_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The block raises its error, and the file of events is closed."""
    group = ConsumerGroup(Harness(NOWHERE).config(events_to=str(tmp_path / "events")))

    def out_of_descriptors(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(trio, "run", out_of_descriptors)
    with pytest.raises(OSError, match="Too many"), group:
        assert list(group) == []
    assert group._group.event_file is not None
    assert group._group.event_file._file is None


def test_an_interrupt_as_a_block_begins_to_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member leaves nevertheless, and no thread stays, nor an entry for the exit."""
    before = threads()
    group = ConsumerGroup(Harness(NOWHERE).config(close_timeout=1.0))
    shutdown = BackgroundGroup.shutdown

    def interrupted(background: BackgroundGroup, reason: str, *, promptly: bool) -> None:
        shutdown(background, reason, promptly=promptly)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), group:
        monkeypatch.setattr(BackgroundGroup, "shutdown", interrupted)
    wait_for_end_of_others(before)
    assert group not in background_group._OPEN


def test_groups_that_are_left_while_the_interpreter_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another thread has left the last other block, the member still waits for its own end."""
    waited: list[ConsumerGroup] = []

    class Leaving(dict[GroupTwin, None]):
        def __bool__(self) -> bool:
            return True  # as it was a moment ago

    monkeypatch.setattr("kgroup.background.group._OPEN", Leaving())
    monkeypatch.setattr(ConsumerGroup, "_wait_at_exit", lambda one: waited.append(one))  # noqa: PLW0108 # a method
    group = ConsumerGroup(Harness(NOWHERE).config())
    group._close_at_exit()
    assert waited == [group]


@pytest.mark.parametrize("early", [True, False])
def test_an_interrupt_while_an_embedded_broker_starts(
    monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Its thread does not stay."""
    before = threads()
    interrupt_a_wait(monkeypatch, 1, early=early)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedKafka().__enter__()
    wait_for_end_of_others(before)
