"""``GroupConfig.events_to``: each event is a line of a file."""

from __future__ import annotations

import json
import linecache
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from trio.testing import MockClock

import kgroup
from kgroup.cli.timeline.reader import read
from kgroup.cli.timeline.story import RUNNING, story_of
from kgroup.clocks import WallClock
from kgroup.errors import ConfigError
from kgroup.event_file import EventFile
from kgroup.events import Left
from tests.group.harness import harness


async def test_a_member_writes_its_events(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A line has the time, the process and the event's own fields; the command can read it."""
    file = tmp_path / "events"
    async with harness() as here, here.group(events_to=file, client_id="worker-1") as group:
        generation = await group.next()
        await generation.commit({})
        first = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
        assert (first["client_id"], first["pid"]) == ("worker-1", os.getpid())
        assert first["member"] == 1
        assert first["group_id"] == group.config.group_id
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(one)["event"] for one in lines][-2:] == ["GenerationEnded", "Left"]
    (joined,) = [one for one in map(json.loads, lines) if one["event"] == "Joined"]
    assert joined["session_timeout"] == group.config.session_timeout
    assert joined["group_instance_id"] is None
    entries, (source,) = read([file])
    assert source.refused == 0
    (member,) = story_of(entries).members
    assert [one.generation_id for one in member.spans if one.phase == RUNNING] == [1]


async def test_a_text_that_is_no_unicode_is_written_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A lone surrogate, which the name of a file can have, is an escape in its line."""
    file = tmp_path / "events"
    async with harness() as here, here.group(events_to=file) as group:
        generation = await group.next()
        generation.emit(Left, reason="of \udcff", notified=True)
    lines = [json.loads(one) for one in file.read_text(encoding="utf-8").splitlines()]
    assert "of \udcff" in [one.get("reason") for one in lines]


async def test_members_share_a_file(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Each one appends whole lines."""
    file = tmp_path / "events"
    async with harness() as here:
        for name in ("a", "b"):
            async with here.group(events_to=str(file), client_id=name) as group:
                await group.next()
    entries, (source,) = read([file])
    assert source.refused == 0
    assert len(story_of(entries).members) == 2


async def test_members_of_one_process_can_be_told_apart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Members with one name have a row each, and one that opens its group again keeps its row."""
    file = tmp_path / "events"
    async with harness() as here:
        async with here.group(events_to=file, client_id="w") as first:
            await first.next()
            for _ in range(2):
                async with here.group(events_to=file, client_id="w") as second:
                    await second.next()
        async with here.group(events_to=file, client_id="w") as third:
            await third.next()
    process = f"{socket.gethostname()}, {os.getpid()}"
    assert [one.name for one in story_of(read([file])[0]).members] == [
        f"w ({process})",
        f"w ({process}, member 2)",
    ]


async def test_a_file_that_cannot_be_opened(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The group does not begin, and the error names the setting."""
    async with harness() as here:
        with pytest.raises(ConfigError, match=r"events_to=.*it must be a file .*No such file"):
            async with here.group(events_to=tmp_path / "no" / "events"):
                raise AssertionError("it was opened")


@pytest.mark.parametrize("package", [kgroup.threaded, kgroup.aio])
def test_a_group_with_a_background_thread_names_it_too(tmp_path: Path, package: Any) -> None:
    """The error comes from entering the group, and not from the first call in it."""
    config = kgroup.GroupConfig(
        bootstrap_servers="localhost:1",
        group_id="g",
        topics=["t"],
        events_to=str(tmp_path / "no" / "events"),
    )
    with pytest.raises(ConfigError, match=r"events_to=.*No such file"):
        package.run(config, _nothing if package is kgroup.threaded else _nothing_async)


def _nothing(generation: object, batch: object) -> None:
    raise AssertionError("it was called")


async def _nothing_async(generation: object, batch: object) -> None:
    raise AssertionError("it was called")


@pytest.mark.parametrize("wrong", [7, "", b"x"])
async def test_what_is_no_path(wrong: object, autojump_clock: MockClock) -> None:
    """It is refused when the settings are made."""
    async with harness() as here:
        with pytest.raises(ConfigError, match="events_to"):
            here.config(events_to=wrong)


IN_FINALLY = ("if me in self._writers:", "self._writers.remove(me)")


def event_file(path: Path) -> EventFile:
    """A file that is open; its member has the number 1 if no other one is open."""
    file = EventFile(str(path), "g", "w", 45.0, None, WallClock())
    file.open()
    return file


def left(reason: str) -> Left:
    """An event that can be recognised."""
    return Left(group_id="g", reason=reason, notified=True)


def at_line(step: int, call: Callable[[], object], act: Callable[[], None]) -> bool:
    """Make a call, and do something before this line of it; whether it came so far."""
    steps = 0

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        if event == "line" and steps == step:
            act()
        return on_line

    def trace(frame: FrameType, *_: Any) -> Any:
        return on_line if frame.f_code.co_filename.endswith("event_file.py") else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps >= step


def interrupted_at(step: int, call: Callable[[], None], interrupt: Callable[[], None]) -> bool:
    """Make a call, and run another thread to its end before this line of it; whether it came."""

    def run() -> None:
        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        thread.join(5.0)
        assert not thread.is_alive()

    return at_line(step, call, run)


def test_no_thread_waits_for_one_that_is_interrupted(tmp_path: Path) -> None:
    """A signal handler may wait for the event loop, which emits events too; no line is lost."""
    for step in count(1):
        path = tmp_path / f"events-{step}"
        file = event_file(path)
        came = interrupted_at(step, partial(file, left("mine")), partial(file, left("the loop's")))
        file.close()
        lines = [json.loads(line)["reason"] for line in path.read_text().splitlines()]
        assert sorted(lines) == (["mine", "the loop's"] if came else ["mine"])
        if not came:
            break
    assert step > 10


def test_a_file_that_is_closed_while_a_thread_writes(tmp_path: Path) -> None:
    """Nobody waits; no line is written in part, and the number is free for the next member."""
    for step in count(1):
        path = tmp_path / f"events-{step}"
        file = event_file(path)
        came = interrupted_at(step, partial(file, left("mine")), file.close)
        file.close()
        lines = [json.loads(line)["reason"] for line in path.read_text().splitlines()]
        assert lines in ([], ["mine"])
        again = event_file(path)
        again(left("again"))
        again.close()
        assert json.loads(path.read_text().splitlines()[-1])["member"] == 1
        if not came:
            break
    assert step > 10
    assert lines == ["mine"]


def raising_at(step: int, call: Callable[[], object]) -> bool:
    """Make a call, and raise before this line of it, as a signal handler may; whether it came.

    Python runs no handler between the beginning of a ``finally`` and the end of its first call, so
    nothing is raised there.
    """

    def interrupt() -> None:
        frame = sys._getframe(2)  # of the line, behind `at_line`
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if line not in IN_FINALLY:
            raise KeyboardInterrupt

    try:
        return at_line(step, call, interrupt)
    except KeyboardInterrupt:
        return True


def test_an_interrupt_at_any_line_stops_no_later_event(tmp_path: Path) -> None:
    """Lines are whole, and the file can be closed, wherever a signal handler raised."""
    for step in count(1):
        path = tmp_path / f"events-{step}"
        file = event_file(path)
        raised = raising_at(step, partial(file, left("mine")))
        file(left("later"))
        file.close()
        lines = [json.loads(line)["reason"] for line in path.read_text().splitlines()]
        assert lines in (["later"], ["mine", "later"])
        if not raised:
            break
    assert step > 10
    assert lines == ["mine", "later"]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("method", ["open", "close"])
def test_an_interrupt_of_opening_or_closing_takes_no_number(tmp_path: Path, method: str) -> None:
    """The next call of close frees it."""

    def interrupt_each_line() -> int:
        for step in count(1):
            file = EventFile(str(tmp_path / "events"), "g", "w", 45.0, None, WallClock())
            if method == "close":
                file.open()
            raised = raising_at(step, getattr(file, method))
            file.close()
            another = event_file(tmp_path / "events")
            assert another._number == 1
            another.close()
            if not raised:
                break
        return step

    # One of the lines is an `except`: the thread handles its exception from then on
    # (tests/handled_exceptions.py).
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(interrupt_each_line).result() > 3


def test_an_event_that_is_emitted_before_the_close_is_written(tmp_path: Path) -> None:
    """Also if both come while another thread has just written its line."""
    for step in count(1):
        path = tmp_path / f"events-{step}"
        file = event_file(path)

        def emit_and_close(file: EventFile = file) -> None:
            file(left("the loop's"))
            file.close()

        came = interrupted_at(step, partial(file, left("mine")), emit_and_close)
        file.close()
        lines = [json.loads(line)["reason"] for line in path.read_text().splitlines()]
        assert "the loop's" in lines or not came
        if not came:
            break
    assert step > 10


def test_a_line_that_a_full_disk_took_in_part(tmp_path: Path) -> None:
    """It is lost, and the next one is whole."""
    path = tmp_path / "events"
    file = event_file(path)
    real, parts = file._file, iter((5, OSError(28, "No space left on device")))

    class Full:
        def write(self, data: bytes) -> int:
            part = next(parts, None)
            if isinstance(part, OSError):
                raise part
            return real.write(data if part is None else data[:part])  # type: ignore[union-attr]

        def close(self) -> None:
            real.close()  # type: ignore[union-attr]

    file._file = Full()  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space left"):
        file(left("cut"))
    file(left("whole"))
    file(left("another"))
    file.close()
    first, *lines = path.read_text().splitlines()
    assert len(first) == 5
    assert [json.loads(line)["reason"] for line in lines] == ["whole", "another"]


def test_a_file_that_another_process_left_with_a_part_of_a_line(tmp_path: Path) -> None:
    """The first event is on a line of its own; a file that is whole gets no empty line."""
    path = tmp_path / "events"
    path.write_bytes(b'{"event": "Joi')
    for _ in range(2):
        file = event_file(path)
        file(left(""))
        file.close()
    part, *whole = path.read_bytes().split(b"\n")
    assert part == b'{"event": "Joi'
    assert [json.loads(line)["event"] for line in whole[:2]] == ["Left", "Left"]
    assert whole[2:] == [b""]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Each event that cannot be written raises and is dropped, and the file can be closed."""
    file = event_file(Path("/dev/full"))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            file(left("mine"))
    file.close()
    another = event_file(tmp_path / "events")
    another(left("another"))
    another.close()
    assert json.loads((tmp_path / "events").read_text())["member"] == 1
