"""What a worker does: the arguments of its process, the same for every client and language."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import attrs

Row = tuple[int | None, int | None, bytes | str | None]
"""Partition, offset and value of a record, as its client gives them."""
Note = Callable[[int, Iterable[Row]], object]
"""Takes the number of a batch's records, and the records; these may be left unread. A client that
can say when it has its partitions notes no records then."""


@final
@attrs.frozen(kw_only=True)
class Job:
    """The arguments of a worker, each written as ``name=value``.

    Attributes:
        servers: Kafka's bootstrap servers.
        topic: the topic to read.
        group: the group to join.
        partitions: the number of the topic's partitions, for clients that assign them themselves.
        session: the session timeout in seconds; used with ``heartbeat``.
        heartbeat: the heartbeat interval in seconds; 0 for the client's own defaults of both.
        refresh: seconds after which a client looks for new partitions; 0 for its default.
        batch: the most records of a batch.
        work: seconds that a handler spends on each batch, as if it waited for a database.
        commit: whether a batch is committed, synchronously, before the next one is taken.
        members: the number of consumers; beyond one, each in a group of its own.
        rounds: how often the worker is run, each time in a new group.
        sink: what is done with processed records; see ``sinks``.
        journal: the file for what the sink finds.
        records: for the sink "meter", the number of records to read.
        each: for the sink "meter", whether value and offset of each record are read.
        properties: for kgroup and confluent-kafka, a file of properties by librdkafka's names that
            come before all others, for example of another listener; empty for none.
        assignors: kgroup's assignors, separated by commas; by default those of GroupConfig.
    """

    servers: str
    topic: str
    group: str
    partitions: int = 12
    session: float = 0.0
    heartbeat: float = 0.0
    refresh: float = 0.0
    batch: int = 100
    work: float = 0.0
    commit: bool = True
    members: int = 1
    rounds: int = 1
    sink: str = "journal"
    journal: str = ""
    records: int = 0
    each: bool = False
    properties: str = ""
    assignors: str = ""

    def arguments(self) -> list[str]:
        """The job as arguments of a process."""
        return [f"{name}={_written(value)}" for name, value in attrs.asdict(self).items()]

    @classmethod
    def parse(cls, arguments: Iterable[str]) -> Job:
        """The job that a process was given."""
        given = dict(argument.split("=", 1) for argument in arguments)
        return cls(
            **{field.name: _READ[str(field.type)](given[field.name]) for field in attrs.fields(cls)}
        )

    def python_timeouts(self) -> dict[str, Any]:
        """Session, heartbeat and refresh for aiokafka and kafka-python, if they are set."""
        seconds = {
            "session_timeout_ms": self.session,
            "heartbeat_interval_ms": self.heartbeat,
            "metadata_max_age_ms": self.refresh,
        }
        return {name: int(value * 1000) for name, value in seconds.items() if value}

    def groups(self) -> list[str]:
        """The group of each member."""
        if self.members == 1:
            return [self.group]
        return [f"{self.group}-{number}" for number in range(self.members)]


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_READ: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: text == "true",
}


@final
class Ended:
    """Says that the worker shall end: set by SIGTERM, or by a sink that has what it wants."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """End the worker; any thread may call this, any number of times."""
        if self:
            return
        self._event.set()
        for callback in list(self._callbacks):
            callback()

    def call(self, callback: Callable[[], object]) -> None:
        """Call this when the worker shall end, from whatever thread says so."""
        self._callbacks.append(callback)
        if self:
            callback()

    def set_at_sigterm(self) -> None:
        """End the worker at SIGTERM."""
        signal.signal(signal.SIGTERM, lambda *_: self.set())


def in_threads(member: Callable[[str], object], groups: Sequence[str]) -> None:
    """Run a member for each group: one in this thread, several in a thread each.

    Raises:
        Exception: that of the first member that failed, after all have ended.
    """
    if len(groups) == 1:
        member(groups[0])
        return
    failures: list[BaseException] = []

    def run(group: str) -> None:
        try:
            member(group)
        except BaseException as error:  # noqa: BLE001 # raised below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in _patiently(threads):
        thread.join()
    if failures:
        raise failures[0]


def _patiently(threads: Iterable[threading.Thread]) -> Iterator[threading.Thread]:
    """Each thread once it has ended; the main thread stays able to handle signals."""
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
        yield thread
