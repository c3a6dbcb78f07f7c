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
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection
from itertools import count
from threading import Lock
from typing import Final, TextIO, final

from kgroup.errors import ConfigError
from kgroup.events import Event, Joined
from kgroup.interfaces import Clock

_NUMBERS: Final[dict[tuple[str, str], set[int]]] = {}
"""The numbers in use in this process, by group and ``client_id``."""
_NUMBERS_LOCK: Final = Lock()
"""Protects ``_NUMBERS``: groups of several threads open their files."""


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
        self._lock = Lock()  # handler threads emit events too
        self._file: TextIO | None = None

    def open(self) -> None:
        """Open the file, unless it is open.

        Raises:
            ConfigError: it cannot be opened.
        """
        if self._file is not None:
            return
        try:
            # A lone surrogate, such as those in names of files, becomes an escape of JSON.
            self._file = open(  # noqa: PTH123, SIM115 - see close
                self._path, "a", encoding="utf-8", errors="backslashreplace"
            )
        except OSError as error:
            raise ConfigError(
                "events_to", self._path, f"it must be a file that can be written ({error.strerror})"
            ) from error
        with _NUMBERS_LOCK:
            used = _NUMBERS.setdefault(self._key, set())
            self._number = _lowest_free(used)
            used.add(self._number)

    def close(self) -> None:
        """Close the file; later events are not written."""
        with self._lock:
            if self._file is None:
                return
            self._file.close()
            self._file = None
        with _NUMBERS_LOCK:
            used = _NUMBERS[self._key]
            used.remove(self._number)
            if not used:
                del _NUMBERS[self._key]

    def __call__(self, event: Event) -> None:
        """Append an event.

        Raises:
            OSError: the disk is full, for example.
        """
        at = round(self._wall_clock.now(), 6)
        line = {"at": at, **self._process, "member": self._number, **event.as_dict()}
        if isinstance(event, Joined):
            line.update(self._of_joined)
        with self._lock:
            if self._file is not None:
                self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
                self._file.flush()


def _lowest_free(used: Collection[int]) -> int:
    """The lowest number from 1 on that is not in use."""
    return next(number for number in count(1) if number not in used)
