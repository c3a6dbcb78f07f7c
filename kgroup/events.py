"""What happens in a group, told once, as values; logs, metrics and displays are made from them.

An event names what it is about and carries no secret. Its ``level`` is a ``logging`` level: a
planned rebalance is INFO, never an error. ``str(event)`` is the line that a log shows; no other
code words a rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import ClassVar, Final, TypeVar

import attrs

from kgroup.types import Assignment, Cause, End, TopicPartition


@attrs.frozen(kw_only=True)
class Event:
    """The root of all events.

    Attributes:
        group_id: the group.
        member_id: the member's id, empty where it has none.
        generation_id: the coordinator's id of the generation, -1 where there is none.
        epoch: kgroup's own number of the generation, 0 where there is none.
    """

    level: ClassVar[int] = logging.INFO

    group_id: str
    member_id: str = ""
    generation_id: int = -1
    epoch: int = 0

    def words(self) -> str:
        """What happened, in words, without whom it happened to."""
        raise NotImplementedError

    def __str__(self) -> str:
        generation = f", generation {self.generation_id}" if self.epoch else ""
        member = f", member {self.member_id}" if self.member_id else ""
        return f"group {self.group_id}{member}{generation}: {self.words()}"


T = TypeVar("T")
_MOST_LISTED: Final = 20


def _some(things: Collection[T], word: Callable[[T], str] = str) -> str:
    """The first ones, and how many follow: other members decide how long such a list is."""
    more = len(things) - _MOST_LISTED
    listed = ", ".join(map(word, islice(things, _MOST_LISTED)))
    return listed + (f" and {more:,} more" if more > 0 else "")


EventHandler = Callable[[Event], None]
"""Is called with each event, in the group's own thread; it must not block."""


@attrs.frozen(kw_only=True)
class CoordinatorFound(Event):
    """The group's coordinator is known, for the first time or again."""

    node_id: int
    address: str

    def words(self) -> str:
        """See ``Event``."""
        return f"coordinator is broker {self.node_id} at {self.address}"


@attrs.frozen(kw_only=True)
class Joining(Event):
    """A JoinGroup is about to be sent."""

    reason: str

    def words(self) -> str:
        """See ``Event``."""
        return f"joining: {self.reason}"


@attrs.frozen(kw_only=True)
class Joined(Event):
    """The JoinGroup was answered: the member is in the generation."""

    leader: bool
    assignor: str
    members: int

    def words(self) -> str:
        """See ``Event``."""
        role = f"leader of {self.members} members" if self.leader else "follower"
        return f"joined as {role}, assignor {self.assignor}"


@attrs.frozen(kw_only=True)
class Assigned(Event):
    """The member knows its partitions and where each starts.

    Attributes:
        assignment: its partitions.
        positions: where each starts, as far as it is known.
    """

    assignment: Assignment
    positions: Mapping[TopicPartition, int]

    def words(self) -> str:
        """See ``Event``."""
        given = self.assignment
        listed = ", ".join(f"{p}{self._from(p)}" for p in given) or "nothing"
        return (
            f"assigned {listed}"
            f" ({len(given.added)} added, {len(given.kept)} kept, {len(given.removed)} removed)"
        )

    def _from(self, partition: TopicPartition) -> str:
        if partition not in self.positions:
            return " from where it is found to begin"
        return f" from {self.positions[partition]}"


@attrs.frozen(kw_only=True)
class PartitionsUnassigned(Event):
    """The leader's assignor left partitions to nobody."""

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def words(self) -> str:
        """See ``Event``."""
        return f"the assignor gave to nobody: {', '.join(map(str, self.partitions))}"


@attrs.frozen(kw_only=True)
class AssignmentRefused(Event):
    """The leader assigned entries that cannot be read; the rest of the assignment is.

    Attributes:
        entries: for each of them what is wrong with it.
    """

    level: ClassVar[int] = logging.WARNING
    entries: Mapping[str, str]

    def words(self) -> str:
        """See ``Event``."""
        entries = _some(self.entries.items(), lambda entry: "{} ({})".format(*entry))
        return f"the leader assigned what cannot be read, which is left out: {entries}"


@attrs.frozen(kw_only=True)
class TopicsRefused(Event):
    """Other members subscribe to what is no topic's name, or may not be read by this leader.

    Attributes:
        topics: for each name what is wrong with it.
    """

    level: ClassVar[int] = logging.WARNING
    topics: Mapping[str, str]

    def words(self) -> str:
        """See ``Event``."""
        topics = _some(self.topics.items(), lambda topic: f"{topic[0]!r:.80} ({topic[1]})")
        return f"other members subscribe to what cannot be assigned: {topics}"


@attrs.frozen(kw_only=True)
class AssignmentGivenUp(Event):
    """The leader does not wait for its assignor any more: too late, or the generation is over.

    A thread cannot be cancelled: it computes on until the assignor returns, and whatever that
    returns or raises then is dropped. The member's next assignment waits for it.
    """

    level: ClassVar[int] = logging.WARNING
    assignor: str
    seconds: float
    thread: str

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"assignor {self.assignor!r} was given up after {self.seconds:.1f} s; it may compute on"
            f" in the thread {self.thread!r}, what it answers is dropped"
        )


@attrs.frozen(kw_only=True)
class TopicsMissing(Event):
    """Topics that are subscribed and do not exist; they are watched until they do."""

    level: ClassVar[int] = logging.WARNING
    topics: tuple[str, ...]

    def words(self) -> str:
        """See ``Event``."""
        return f"subscribed topics do not exist yet: {_some(self.topics)}"


@attrs.frozen(kw_only=True)
class OffsetReset(Event):
    """A position was decided by ``auto_offset_reset``.

    Attributes:
        skipped: whether a position that there was is not in the log: records are gone.
    """

    partition: TopicPartition
    offset: int
    reason: str
    skipped: bool

    @property
    def severity(self) -> int:
        """INFO at a group's first start, WARNING where records are gone."""
        return logging.WARNING if self.skipped else logging.INFO

    def words(self) -> str:
        """See ``Event``."""
        return f"{self.partition} starts at {self.offset}: {self.reason}"


@attrs.frozen(kw_only=True)
class GenerationStarted(Event):
    """The generation was handed over to the program."""

    def words(self) -> str:
        """See ``Event``."""
        return "generation started"


@attrs.frozen(kw_only=True)
class GenerationDraining(Event):
    """The generation is over as planned; its tasks finish what they hold."""

    end: End
    deadline: float

    def words(self) -> str:
        """See ``Event``."""
        return f"draining for at most {self.deadline:.1f} s ({self.end})"


_WORDS_BY_CAUSE: Final = {
    True: "generation ended",
    False: "generation ended, its partitions are lost",
}
_QUIET: Final = frozenset(
    {
        Cause.REBALANCE,
        Cause.TASK_RETURNED,
        Cause.PARTITIONS_CHANGED,
        Cause.SUBSCRIPTION_CHANGED,
        Cause.CLOSED,
        Cause.CANCELLED,
    }
)


@attrs.frozen(kw_only=True)
class GenerationEnded(Event):
    """The generation is over; ``cut_short`` where tasks outlasted the drain and were cancelled."""

    end: End
    cut_short: bool

    @property
    def severity(self) -> int:
        """INFO for what was planned, WARNING for what was not."""
        planned = self.end.cause in _QUIET and not self.cut_short
        return logging.INFO if planned else logging.WARNING

    def words(self) -> str:
        """See ``Event``."""
        cut = "; tasks that outlasted the drain were cancelled" if self.cut_short else ""
        return f"{_WORDS_BY_CAUSE[self.end.can_commit]} ({self.end}){cut}"


@attrs.frozen(kw_only=True)
class Committed(Event):
    """Offsets were committed."""

    level: ClassVar[int] = logging.DEBUG
    offsets: Mapping[TopicPartition, int]

    def words(self) -> str:
        """See ``Event``."""
        return "committed " + ", ".join(f"{p} at {self.offsets[p]}" for p in sorted(self.offsets))


@attrs.frozen(kw_only=True)
class CommitRefused(Event):
    """A commit was refused, by the coordinator or by kgroup itself before it was sent."""

    level: ClassVar[int] = logging.WARNING
    offsets: Mapping[TopicPartition, int]
    reason: str
    stale: bool

    def words(self) -> str:
        """See ``Event``."""
        listed = ", ".join(f"{p} at {self.offsets[p]}" for p in sorted(self.offsets))
        return f"commit of {listed} refused: {self.reason}"


@attrs.frozen(kw_only=True)
class PartitionsNotRead(Event):
    """Partitions are assigned and no stream was opened for them."""

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def words(self) -> str:
        """See ``Event``."""
        listed = ", ".join(map(str, self.partitions))
        return f"assigned, but nobody reads: {listed}; open generation.records() for them"


@attrs.frozen(kw_only=True)
class LoopBlocked(Event):
    """The event loop stood still for over a third of the session time-out."""

    level: ClassVar[int] = logging.WARNING
    seconds: float

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"the event loop was blocked, or the process stopped, for {self.seconds:.1f} s;"
            " heartbeats could not be sent: move blocking work to a thread"
        )


@attrs.frozen(kw_only=True)
class RequestFailed(Event):
    """A request failed and the recovery table says what comes next."""

    level: ClassVar[int] = logging.WARNING
    request: str
    reason: str
    next_action: str

    def words(self) -> str:
        """See ``Event``."""
        return f"{self.request} failed: {self.reason}; {self.next_action}"


@attrs.frozen(kw_only=True)
class BackingOff(Event):
    """A wait before joining again."""

    seconds: float
    reason: str

    def words(self) -> str:
        """See ``Event``."""
        return f"waiting {self.seconds:.2f} s before joining again: {self.reason}"


@attrs.frozen(kw_only=True)
class Left(Event):
    """The member left the group, or could not tell the coordinator so."""

    reason: str
    told: bool

    def words(self) -> str:
        """See ``Event``."""
        if self.told:
            return f"left: {self.reason}"
        return f"gone without telling the coordinator: {self.reason}"


@attrs.frozen(kw_only=True)
class SourceFault(Event):
    """Reading a partition had a fault that kgroup waits out."""

    level: ClassVar[int] = logging.WARNING
    partition: TopicPartition | None
    reason: str

    def words(self) -> str:
        """See ``Event``."""
        subject = f"reading {self.partition}" if self.partition else "reading"
        return f"{subject}: {self.reason}"


@attrs.frozen(kw_only=True)
class HandlerOutstayed(Event):
    """A handler thread went on after the drain; it cannot be cancelled."""

    level: ClassVar[int] = logging.WARNING
    thread: str
    stack: str

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"thread {self.thread} outstayed the drain; its commits are refused and no new"
            f" generation is asked for until it is gone. It is at:\n{self.stack}"
        )


@attrs.frozen(kw_only=True)
class _BatchEvent(Event):
    """The root of events about a batch that Spark reads.

    Attributes:
        batch_id: from the group and the ranges.
        ranges: for each partition the first offset, and the one behind the last.
    """

    batch_id: str
    ranges: Mapping[TopicPartition, tuple[int, int]]

    def _which(self) -> str:
        return f"batch {self.batch_id[:8]}"

    def _whose(self) -> str:
        return f"{len(self.ranges)} partition{'' if len(self.ranges) == 1 else 's'}"


@attrs.frozen(kw_only=True)
class BatchDone(_BatchEvent):
    """A batch was run, and its end committed.

    Attributes:
        rows: records that were read; where nobody counts them, offsets.
        bytes: of their keys and values, or None where nobody counts.
        planning: seconds to make the frame.
        running: seconds of the program's function, with its Spark jobs.
        committing: seconds of the commit.
        lag: offsets that were left to read when it was last looked.
    """

    rows: int
    bytes: int | None
    planning: float
    running: float
    committing: float
    lag: int

    @property
    def rows_per_second(self) -> float:
        """Rows by all the seconds of the batch."""
        seconds = self.planning + self.running + self.committing
        return self.rows / seconds if seconds > 0 else 0.0

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"{self._which()}: {self.rows:,} rows of {self._whose()} in"
            f" {self.planning + self.running + self.committing:.2f} s"
            f" ({self.rows_per_second:,.0f} rows/s), committed in {1000 * self.committing:.0f} ms,"
            f" lag {self.lag:,}"
        )


@attrs.frozen(kw_only=True)
class BatchFailed(_BatchEvent):
    """The program's function, or a job of it, raised; nothing was committed.

    Attributes:
        running: seconds until then.
        reason: what was raised.
    """

    level: ClassVar[int] = logging.WARNING
    running: float
    reason: str

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"{self._which()} of {self._whose()} failed after {self.running:.2f} s: {self.reason}"
        )


@attrs.frozen(kw_only=True)
class BatchCancelled(_BatchEvent):
    """A batch was cancelled, and its tasks have stopped; nothing was committed.

    Attributes:
        running: seconds until they had stopped.
        reason: the end of the generation, or that the program cancelled it.
    """

    running: float
    reason: str

    def words(self) -> str:
        """See ``Event``."""
        return (
            f"{self._which()} of {self._whose()} cancelled after {self.running:.2f} s:"
            f" {self.reason}"
        )


@attrs.frozen(kw_only=True)
class JobOutstayed(Event):
    """A cancelled batch still runs: its function, or tasks of its jobs.

    Attributes:
        job_group: Spark's name for its jobs.
        thread: the function's.
        stack: where the thread is, or None if the function has returned.
        tasks: how many tasks still run; None where Spark does not tell.
        seconds: since it was cancelled.
    """

    level: ClassVar[int] = logging.WARNING
    job_group: str
    thread: str
    stack: str | None
    tasks: int | None
    seconds: float

    def words(self) -> str:
        """See ``Event``."""
        tasks = "" if self.tasks is None else f", {self.tasks} tasks run"
        stack = "" if self.stack is None else f"; thread {self.thread} is at:\n{self.stack}"
        return (
            f"job group {self.job_group} was cancelled {self.seconds:.0f} s ago and goes on"
            f"{tasks}; the generation's end waits for it{stack}"
        )


def severity(event: Event) -> int:
    """The ``logging`` level of an event."""
    return event.severity if isinstance(event, OffsetReset | GenerationEnded) else event.level
