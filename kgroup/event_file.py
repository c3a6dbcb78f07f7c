"""``EventFile``: appends events to a file, a line of JSON each; ``kgroup timeline`` draws it.

A line has the event's own fields (``Event.as_dict``), and when and in which process it happened:
``at`` in seconds since 1970, ``client_id``, ``host`` and ``pid``. Members of several processes may
share a file, because each line is appended by one call.
"""

from __future__ import annotations

import json
import os
import socket
from threading import Lock
from typing import TextIO, final

from kgroup.errors import ConfigError
from kgroup.events import Event
from kgroup.interfaces import Clock


@final
class EventFile:
    """Writes the events of one group's member; an event handler.

    Args:
        path: the file; it is made if there is none, and its folder must exist.
        client_id: the member's name.
        wall_clock: gives the time, in seconds since 1970.
    """

    def __init__(self, path: str, client_id: str, wall_clock: Clock) -> None:
        self._path = path
        self._process = {"client_id": client_id, "host": socket.gethostname(), "pid": os.getpid()}
        self._wall_clock = wall_clock
        self._lock = Lock()  # handler threads emit events too
        self._file: TextIO | None = None

    def open(self) -> None:
        """Open the file.

        Raises:
            ConfigError: it cannot be opened.
        """
        try:
            self._file = open(self._path, "a", encoding="utf-8")  # noqa: PTH123, SIM115 - see close
        except OSError as error:
            raise ConfigError(
                "events_to", self._path, f"it must be a file that can be written ({error.strerror})"
            ) from error

    def close(self) -> None:
        """Close the file; later events are not written."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def __call__(self, event: Event) -> None:
        """Append an event.

        Raises:
            OSError: the disk is full, for example.
        """
        line = {"at": round(self._wall_clock.now(), 6), **self._process, **event.as_dict()}
        with self._lock:
            if self._file is not None:
                self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
                self._file.flush()
