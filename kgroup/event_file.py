"""``EventFile``: appends events to a file, a line of JSON each; ``kgroup timeline`` draws it.

A line has the event's own fields (``Event.as_dict``), and when and in which process it happened:
``at`` in seconds since 1970, ``client_id``, ``host``, ``pid`` and ``member``. A ``Joined`` also has
the member's ``session_timeout``, after which the coordinator removes a member that is gone, and its
``group_instance_id``, by which a reader finds the process that replaced another. Members of several
processes may share a file, because each line is appended by one call.

INVARIANT: two members of one process that are open at the same time, in one group and with one
``client_id``, have different numbers as their ``member``, so that a reader can tell them apart. The
coordinator's ``member_id`` cannot do that: it is empty at first, and a member may be given another.
A number is used again after ``close``, so that a program which opens its group again after each
failure remains one member of the timeline.

**Threads.** The event loop and handler threads emit events, and none of them waits for another
here: a signal handler or a finalizer that interrupts a thread may wait for the event loop, which
would then wait for that thread. So a line goes into a queue, and the first of the ``_writers``
writes what is there. Another one goes on, because the first looks once more when it is none any
more. The writers are no lock: a signal handler may raise between acquiring a lock and whatever
would release it.
"""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from contextlib import suppress
from io import FileIO
from itertools import count
from typing import Final, final

from kgroup.errors import ConfigError
from kgroup.events import Event, Joined
from kgroup.interfaces import Clock

_MEMBERS: Final[dict[tuple[str, str, int], EventFile]] = {}
"""Who has a number in this process, by group, ``client_id`` and number."""


@final
class EventFile:
    """Writes the events of one group's member; an event handler.

    Args:
        path: the file; it is made if there is none, and its folder must exist.
        group_id: the group.
        client_id: the member's name.
        session_timeout: the member's, in seconds.
        group_instance_id: the member's; None without one.
        wall_clock: gives the time, in seconds since 1970.
    """

    def __init__(
        self,
        path: str,
        group_id: str,
        client_id: str,
        session_timeout: float,
        group_instance_id: str | None,
        wall_clock: Clock,
    ) -> None:
        self._path = path
        self._of_joined = {
            "session_timeout": session_timeout,
            "group_instance_id": group_instance_id,
        }
        self._key = (group_id, client_id)
        self._process = {"client_id": client_id, "host": socket.gethostname(), "pid": os.getpid()}
        self._number = 0  # while the file is open, at least 1
        self._wall_clock = wall_clock
        self._file: FileIO | None = None
        self._lines: deque[bytes] = deque()
        self._writers: list[object] = []
        """The calls of `_serve`, of which the first one writes lines, and closes the file."""
        self._closing = False
        self._cut = False  # whether the last line of the file is there in part

    def open(self) -> None:
        """Open the file, unless it is open.

        Raises:
            ConfigError: it cannot be opened.
        """
        self._closing = False
        if self._file is not None:
            return
        try:
            # Without a buffer, which could keep lines that the disk had no space for.
            file = open(self._path, "ab", buffering=0)  # noqa: PTH123, SIM115 - see close
        except OSError as error:
            raise ConfigError(
                "events_to", self._path, f"it must be a file that can be written ({error.strerror})"
            ) from error
        self._number = next(
            number for number in count(1) if _MEMBERS.setdefault((*self._key, number), self) is self
        )
        # A process that ended while the disk was full may have left a part of a line.
        self._cut = _ends_in_part(self._path)
        self._file = file

    def close(self) -> None:
        """Close the file, as soon as no thread writes to it; later events are not written."""
        self._closing = True
        with suppress(OSError):  # of a line whose thread was interrupted, and has not written it
            self._serve()
        if self._file is None:
            self._free_number()

    def __call__(self, event: Event) -> None:
        """Append an event.

        Raises:
            OSError: the disk is full, for example.
        """
        if self._file is None or self._closing:
            return
        at = round(self._wall_clock.now(), 6)
        line = {"at": at, **self._process, "member": self._number, **event.as_dict()}
        if isinstance(event, Joined):
            line.update(self._of_joined)
        # A lone surrogate, such as those in names of files, becomes an escape of JSON.
        text = json.dumps(line, ensure_ascii=False) + "\n"
        self._lines.append(text.encode("utf-8", "backslashreplace"))
        self._serve()

    def _serve(self) -> None:
        """Write the lines that wait, and close the file if that is due, unless a thread does so.

        Raises:
            OSError: a line could not be written; all others were tried.
        """
        me, failure = object(), None
        while self._has_work():
            try:
                self._writers.append(me)
                if self._writers[0] is not me:
                    break
                failure = self._write_lines() or failure
            finally:
                if me in self._writers:
                    self._writers.remove(me)
        if failure is not None:
            raise failure

    def _has_work(self) -> bool:
        return self._file is not None and (bool(self._lines) or self._closing)

    def _write_lines(self) -> OSError | None:
        """Write what waits, and return the last failure. Only the first writer calls it."""
        # Before the lines: what was emitted before `close` was called is written.
        closing, failure = self._closing, None
        while self._file is not None and self._lines:
            try:
                self._write(self._file, self._lines.popleft())
            except OSError as error:
                failure = error
        if closing and self._file is not None:
            file, self._file = self._file, None
            self._lines.clear()
            self._free_number()
            file.close()
        return failure

    def _write(self, file: FileIO, line: bytes) -> None:
        rest = b"\n" + line if self._cut else line
        while rest:  # a disk that gets full takes a part
            rest = rest[file.write(rest) :]
            self._cut = bool(rest)

    def _free_number(self) -> None:
        for place in [place for place, owner in _MEMBERS.copy().items() if owner is self]:
            _MEMBERS.pop(place, None)


def _ends_in_part(path: str) -> bool:
    """Whether a file's last line is there in part; False for a pipe, or what cannot be read."""
    try:
        if not os.path.isfile(path):  # noqa: PTH113
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # which an empty file raises, too
        return False
