"""Events: everything that happens in a group, as values. Logs, metrics and displays use them.

An event names its group, member and generation, and carries no secret. Its ``level`` is a
``logging`` level: a rebalance is INFO, never an error. ``str(event)`` is the line that a log shows;
no other code writes log lines about a rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, final

import attrs

from kgroup.errors import count_of, creation, short_list
from kgroup.types import Assignment, Cause, End, TopicPartition


@attrs.frozen(kw_only=True)
class Event:
    """The root of all events.

    Attributes:
        group_id: the group.
        member_id: the member's id, or empty if it has none yet.
        generation_id: the coordinator's id of the generation, or -1 if there is none.
        epoch: kgroup's own number of the generation, or 0 if there is none.
    """

    level: ClassVar[int] = logging.INFO

    group_id: str
    member_id: str = ""
    generation_id: int = -1
    epoch: int = 0

    @property
    def severity(self) -> int:
        """The ``logging`` level of this event."""
        return self.level

    @property
    def logged_error(self) -> BaseException | None:
        """The exception that a log shows with this event, with its traceback; None for most."""
        return None

    def message(self) -> str:
        """What happened, without the group, the member and the generation."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """The event as values of JSON: its name, its level's name, its fields and its message.

        A partition is written as ``topic-number``, an assignment as a list of partitions, and the
        end of a generation as its cause and its detail. A field that ``repr`` leaves out, such as
        an exception, is left out here too.
        """
        shown = [field.name for field in attrs.fields(type(self)) if field.repr]
        fields = {name: _plain(getattr(self, name)) for name in shown}
        return {
            "event": type(self).__name__,
            "level": logging.getLevelName(self.severity),
            **fields,
            "message": self.message(),
        }

    def __str__(self) -> str:
        generation = f", generation {self.generation_id}" if self.epoch else ""
        member = f", member {self.member_id}" if self.member_id else ""
        return f"group {self.group_id}{member}{generation}: {self.message()}"


V = TypeVar("V")


@final
class ByPartition(Mapping[TopicPartition, V]):
    """A mapping of partitions that cannot be changed, as events have it.

    It can be pickled, and ``attrs.asdict`` leaves it as it is: of a dict it would convert the keys
    to dicts, which cannot be keys.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[TopicPartition, V]) -> None:
        self._values = dict(values)

    def __getitem__(self, partition: TopicPartition) -> V:
        return self._values[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def _offsets(values: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    return ByPartition(values)


def _ranges(
    values: Mapping[TopicPartition, tuple[int, int]],
) -> Mapping[TopicPartition, tuple[int, int]]:
    return ByPartition(values)


def _texts(values: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, str]:
    return ByPartition(values)


def _listed(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{partition} at {offsets[partition]}" for partition in sorted(offsets))


def _plain(value: object) -> Any:
    """A field of an event as a value of JSON."""
    if isinstance(value, End):
        return {"cause": value.cause.value, "detail": value.detail}
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


EventHandler = Callable[[Event], None]
"""A function that is called with each event, in the group's own thread; it must not block. It may
be a ``kgroup.interfaces.Monitor``, which learns more."""


@attrs.frozen(kw_only=True)
class CoordinatorFound(Event):
    """The member has found the group's coordinator, for the first time or again."""

    node_id: int
    address: str

    def message(self) -> str:
        """See ``Event``."""
        return f"the coordinator is broker {self.node_id} at {self.address}"


FIRST_JOIN: Final = "the member has started"
"""The reason of a member's first JoinGroup."""
NEW_ID_JOIN: Final = (
    "a commit of the last generation may not have arrived, and must not arrive later"
)
"""The reason of a JoinGroup by which a member changes its id, and of its leave before that."""


@attrs.frozen(kw_only=True)
class Joining(Event):
    """The member is about to send a JoinGroup."""

    reason: str

    def message(self) -> str:
        """See ``Event``."""
        return f"joining: {self.reason}"


@attrs.frozen(kw_only=True)
class Joined(Event):
    """The coordinator answered the JoinGroup: the member belongs to the new generation."""

    leader: bool
    assignor: str
    members: int

    def message(self) -> str:
        """See ``Event``."""
        members = "1 member" if self.members == 1 else f"{self.members} members"
        role = f"the leader of {members}" if self.leader else "a follower"
        return f"joined as {role}, with assignor {self.assignor}"


@attrs.frozen(kw_only=True)
class Assigned(Event):
    """The member knows its partitions, and where it starts to read each of them.

    Attributes:
        assignment: the partitions.
        start_offsets: the start offset of each partition, if it was found before the hand-over.
        start_origins: where the start offset comes from, for those partitions that do not start at
            the group's committed offset: ``"starts"`` for the program's function, ``"earliest"`` or
            ``"latest"`` for ``auto_offset_reset``.
    """

    assignment: Assignment
    start_offsets: Mapping[TopicPartition, int] = attrs.field(converter=_offsets, hash=False)
    start_origins: Mapping[TopicPartition, str] = attrs.field(
        converter=_texts, factory=dict, hash=False
    )

    def message(self) -> str:
        """See ``Event``."""
        given = self.assignment
        listed = ", ".join(f"{p}{self._from(p)}" for p in given) or "nothing"
        return (
            f"assigned {listed}"
            f" ({len(given.added)} added, {len(given.kept)} kept, {len(given.removed)} removed)"
        )

    def _from(self, partition: TopicPartition) -> str:
        if partition not in self.start_offsets:
            return " (start offset not known yet)"
        origin = self.start_origins.get(partition)
        return f" from {self.start_offsets[partition]}" + (f" ({origin})" if origin else "")


@attrs.frozen(kw_only=True)
class PartitionsUnassigned(Event):
    """This member is the leader, and its assignor assigned some partitions to no member."""

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"the assignor assigned no member to {short_list(self.partitions)}; these"
            " partitions are not read in this generation"
        )


@attrs.frozen(kw_only=True)
class AssignmentRefused(Event):
    """The leader's assignment has entries that are not partitions; the member reads the others.

    Attributes:
        entries: for each such entry, what is wrong with it.
    """

    level: ClassVar[int] = logging.WARNING
    entries: Mapping[str, str] = attrs.field(hash=False)

    def message(self) -> str:
        """See ``Event``."""
        entries = short_list(self.entries.items(), lambda entry: "{} ({})".format(*entry))
        return f"the leader's assignment has invalid entries, which this member ignores: {entries}"


@attrs.frozen(kw_only=True)
class TopicsRefused(Event):
    """Other members subscribe to invalid topics, or to topics that this leader may not read.

    Attributes:
        topics: for each name, what is wrong with it.
    """

    level: ClassVar[int] = logging.WARNING
    topics: Mapping[str, str] = attrs.field(hash=False)

    def message(self) -> str:
        """See ``Event``."""
        topics = short_list(self.topics.items(), lambda topic: f"{topic[0]!r:.80} ({topic[1]})")
        return f"other members subscribe to topics that this leader cannot assign: {topics}"


_LITTLE_TIME: Final = 1.0


@attrs.frozen(kw_only=True)
class AssignorAbandoned(Event):
    """The leader stopped waiting for its assignor: it was too slow, or the generation has ended.

    A thread cannot be cancelled. The assignor runs on until it returns, and its result is ignored.
    The member's next assignment waits for that thread.
    """

    level: ClassVar[int] = logging.WARNING
    assignor: str
    seconds: float
    thread: str

    @property
    def severity(self) -> int:
        """WARNING, but DEBUG within the first second, as when another member joins meanwhile."""
        return logging.DEBUG if self.seconds < _LITTLE_TIME else self.level

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"stopped waiting for the assignor {self.assignor!r} after {self.seconds:.1f} s; it may"
            f" still run in the thread {self.thread!r}, and its result will be ignored"
        )


@attrs.frozen(kw_only=True)
class TopicsMissing(Event):
    """Some subscribed topics do not exist; the leader reports it every five minutes.

    Attributes:
        topics: the topics.
        nearest: for topics with a name like that of an existing topic, that topic's name.
    """

    level: ClassVar[int] = logging.WARNING
    topics: tuple[str, ...]
    nearest: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def message(self) -> str:
        """See ``Event``."""
        shown = [
            f"{name} (did you mean {self.nearest[name]}?)" if name in self.nearest else name
            for name in self.topics
        ]
        return (
            f"subscribed topics do not exist: {short_list(shown)}; once they exist, the"
            " group rebalances and reads them"
        )


@attrs.frozen(kw_only=True)
class PartitionsLeaderless(Event):
    """Partitions have had no leader for 30 s; the group's leader reports it every five minutes.

    Attributes:
        partitions: the partitions, of all topics of the group.
    """

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"no broker leads {short_list(self.partitions)}: they cannot be read or written until a"
            " broker with a replica of them is back"
        )


@attrs.frozen(kw_only=True)
class PatternsUnmatched(Event):
    """Some subscribed patterns match no topic; the member reports it every five minutes.

    Attributes:
        patterns: the patterns.
        nearest: for patterns that an existing topic's name is like, that topic's name.
    """

    level: ClassVar[int] = logging.WARNING
    patterns: tuple[str, ...]
    nearest: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def message(self) -> str:
        """See ``Event``."""
        shown = [
            f"{pattern!r} (did you mean topic {self.nearest[pattern]}?)"
            if pattern in self.nearest
            else repr(pattern)
            for pattern in self.patterns
        ]
        return (
            f"no topic matches these subscribed patterns: {short_list(shown)}. A pattern has to"
            " match a topic's whole name; internal topics are excluded, and so are those that this"
            " user may not DESCRIBE. Once a topic matches, the group rebalances and reads it"
        )


@attrs.frozen(kw_only=True)
class OffsetReset(Event):
    """A partition starts where ``auto_offset_reset`` says, or where its log was truncated.

    Attributes:
        partition: the partition.
        offset: where it starts.
        reason: why it had no usable position.
        skipped: whether it had a position that is no longer in the log, so that records are lost.
    """

    partition: TopicPartition
    offset: int
    reason: str
    skipped: bool

    @property
    def severity(self) -> int:
        """INFO at a group's first start, WARNING if records are lost."""
        return logging.WARNING if self.skipped else logging.INFO

    def message(self) -> str:
        """See ``Event``."""
        return f"{self.partition} starts at offset {self.offset}: {self.reason}"


@attrs.frozen(kw_only=True)
class GenerationStarted(Event):
    """The program received the generation."""

    def message(self) -> str:
        """See ``Event``."""
        return "generation started"


@attrs.frozen(kw_only=True)
class GenerationDraining(Event):
    """The generation is ending, commits still succeed, and its tasks finish their current work.

    Attributes:
        end: why the generation ends.
        seconds: how long the tasks have.
    """

    end: End
    seconds: float

    def message(self) -> str:
        """See ``Event``."""
        return f"draining, for at most {self.seconds:.1f} s ({self.end})"


_ROUTINE: Final = frozenset(
    {
        Cause.REBALANCE,
        Cause.TASK_RETURNED,
        Cause.PARTITIONS_CHANGED,
        Cause.SUBSCRIPTION_CHANGED,
        Cause.CLOSED,
        Cause.CANCELLED,
    }
)
_NOTICED: Final = 0.1
"""The shortest drain, in seconds, whose length is in the message of `GenerationEnded`."""


@attrs.frozen(kw_only=True)
class GenerationEnded(Event):
    """The generation has ended; ``seconds`` says how long its tasks took to end.

    Attributes:
        end: why it ended.
        cut_short: whether work was still running when the drain ended, at its deadline or because
            the partitions were lost in it. Tasks were then cancelled; threads cannot be, nor the
            body of the program's loop outside of ``Generation.scope``, and run on. A cancellation
            of the group does not count.
        seconds: the time from the beginning of the end until the last task had ended. Unless the
            partitions were lost, this is how long the drain took. In a rebalance, the group's other
            members wait for the longest drain; while a member drains for a cause of its own, such
            as its close, they work.
    """

    end: End
    cut_short: bool
    seconds: float = 0.0

    @property
    def severity(self) -> int:
        """INFO for an end of normal operation, WARNING for any other and for a cut-short drain."""
        routine = self.end.cause in _ROUTINE and not self.cut_short
        return logging.INFO if routine else logging.WARNING

    def message(self) -> str:
        """See ``Event``."""
        lost = "" if self.end.can_commit else ", and its partitions are lost"
        cut = "; its work was still running when its drain ended" if self.cut_short else ""
        return f"generation ended{lost} ({self.end}){cut}{self._duration()}"

    def _duration(self) -> str:
        """The part of the message on ``seconds``; empty for less than ``_NOTICED``."""
        if self.seconds < _NOTICED:
            return ""
        # A generation whose partitions are lost has no drain, or its drain was broken off.
        if self.end.can_commit:
            return f"; its drain took {self.seconds:.1f} s"
        return f"; its tasks took {self.seconds:.1f} s to end"


@attrs.frozen(kw_only=True)
class Committed(Event):
    """The coordinator accepted a commit, or a producer added offsets to its open transaction.

    Offsets in a transaction count only once the producer has committed it.

    Attributes:
        offsets: the offsets of the commit.
        seconds: the time from the request to its response, with the attempts before it.
    """

    level: ClassVar[int] = logging.DEBUG
    offsets: Mapping[TopicPartition, int] = attrs.field(converter=_offsets, hash=False)
    seconds: float = 0.0

    def message(self) -> str:
        """See ``Event``."""
        return f"committed {_listed(self.offsets)}"


@attrs.frozen(kw_only=True)
class CommitRefused(Event):
    """A commit was not confirmed: it was refused, was not sent, or got no answer.

    One that is called only after the end of its generation raises, and is no event: the end is one.

    Attributes:
        offsets: the offsets that are not confirmed.
        reason: why; without an answer the commit may have been applied.
        stale: whether the reason is that the generation has ended.
        seconds: the time from the request to the refusal; 0 if nothing was sent.
    """

    level: ClassVar[int] = logging.WARNING
    offsets: Mapping[TopicPartition, int] = attrs.field(converter=_offsets, hash=False)
    reason: str
    stale: bool
    seconds: float = 0.0

    def message(self) -> str:
        """See ``Event``."""
        return f"the commit of {_listed(self.offsets)} was not confirmed: {self.reason}"


@attrs.frozen(kw_only=True)
class CommitsRestored(Event):
    """A commit without an answer arrived after a later one; the later one was committed again.

    Attributes:
        offsets: what is committed now, and had been before.
        found: the offsets that the late commit had stored.
    """

    level: ClassVar[int] = logging.WARNING
    offsets: Mapping[TopicPartition, int] = attrs.field(converter=_offsets, hash=False)
    found: Mapping[TopicPartition, int] = attrs.field(converter=_offsets, hash=False)

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"a commit that had got no answer arrived late, and stored {_listed(self.found)};"
            f" committed again what had been acknowledged after it: {_listed(self.offsets)}"
        )


@attrs.frozen(kw_only=True)
class CommitsMissing(Event):
    """Records were processed for minutes, or until the group closed, and are not committed."""

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"records of {short_list(self.partitions)} were handed out, and nothing has been"
            " committed since: the member that owns the partitions next will get these records"
            " again. Once they are processed, call"
            " generation.commit({batch.partition: batch.next_offset})"
        )


@attrs.frozen(kw_only=True)
class PartitionsNotRead(Event):
    """The program has opened no stream for some of its assigned partitions."""

    level: ClassVar[int] = logging.WARNING
    partitions: tuple[TopicPartition, ...]

    def message(self) -> str:
        """See ``Event``."""
        partitions = short_list(self.partitions)
        return f"no stream is open for {partitions}; call generation.records() to read them"


@attrs.frozen(kw_only=True)
class LoopBlocked(Event):
    """The event loop did not run for over a third of the session timeout."""

    level: ClassVar[int] = logging.WARNING
    seconds: float

    def message(self) -> str:
        """See ``Event``."""
        return (
            "the process was suspended, or kgroup's event loop was blocked, for"
            f" {self.seconds:.1f} s; meanwhile no heartbeat was sent. If the program was not"
            " suspended, move blocking work to a thread; with kgroup.threaded and kgroup.aio, whose"
            " loop has a thread of its own, something held the interpreter lock"
        )


@attrs.frozen(kw_only=True)
class RequestFailed(Event):
    """A request failed; ``next_action`` says what kgroup does about it."""

    level: ClassVar[int] = logging.WARNING
    request: str
    reason: str
    next_action: str

    def message(self) -> str:
        """See ``Event``."""
        return f"{self.request} failed: {self.reason}; next: {self.next_action}"


@attrs.frozen(kw_only=True)
class BackingOff(Event):
    """The member waits before it joins again.

    Attributes:
        seconds: how long.
        reason: why.
        advice: what the program may have meant, or an empty text.
    """

    seconds: float
    reason: str
    advice: str = ""

    @property
    def severity(self) -> int:
        """INFO, but WARNING with advice."""
        return logging.WARNING if self.advice else logging.INFO

    def message(self) -> str:
        """See ``Event``."""
        advice = f"; {self.advice}" if self.advice else ""
        return f"waiting {self.seconds:.2f} s before joining again: {self.reason}{advice}"


@attrs.frozen(kw_only=True)
class Left(Event):
    """The member is no longer part of the group.

    Attributes:
        reason: why.
        notified: whether the coordinator knows. If not, it waits for the session timeout before it
            assigns the member's partitions to others. A static member never notifies it.
    """

    reason: str
    notified: bool

    def message(self) -> str:
        """See ``Event``."""
        if self.notified:
            return f"left the group: {self.reason}"
        return (
            f"stopped without leaving the group: {self.reason}; if it is still a member, others get"
            " its partitions when its session ends"
        )


@attrs.frozen(kw_only=True)
class RecordSourceFailed(Event):
    """Reading failed, of one partition or of all; kgroup retries, or renews its source."""

    level: ClassVar[int] = logging.WARNING
    partition: TopicPartition | None
    reason: str

    def message(self) -> str:
        """See ``Event``."""
        subject = f" {self.partition}" if self.partition else ""
        return f"fault while reading{subject}: {self.reason}"


@attrs.frozen(kw_only=True)
class LoginDelayed(Event):
    """A token, or user name and password, could not be looked up; kgroup tries again."""

    level: ClassVar[int] = logging.WARNING
    reason: str

    def message(self) -> str:
        """See ``Event``."""
        return f"no new login yet: {self.reason}"


@attrs.frozen(kw_only=True)
class OwnStartsDelayed(Event):
    """The function of ``GroupConfig.starts`` is still running, and the hand-over waits for it.

    Attributes:
        function: its name.
        partitions: for how many partitions it was called.
        waited: the seconds since then.
    """

    level: ClassVar[int] = logging.WARNING
    function: str
    partitions: int
    waited: float

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"{self.function}, the function of GroupConfig.starts, was called for"
            f" {self.partitions} partitions {self.waited:.0f} s ago and has not returned; they are"
            " not read before"
        )


@attrs.frozen(kw_only=True)
class HandlerStillRunning(Event):
    """A handler thread is still running after the drain; threads cannot be cancelled."""

    level: ClassVar[int] = logging.WARNING
    thread: str
    stack: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"thread {self.thread} is still running after the drain; its commits are refused, and"
            f" the member joins no new generation until it returns. Its stack:\n{self.stack}"
        )


@attrs.frozen(kw_only=True)
class BodyStillRunning(Event):
    """A generation ended a third of the session timeout ago, and the loop's body has not returned.

    Attributes:
        seconds: the time since the last work of the generation, other than the body's, has ended.
        stack: where the body is.
    """

    level: ClassVar[int] = logging.WARNING
    seconds: float
    stack: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"the body of the loop over the group is still running {self.seconds:.0f} s after its"
            " generation; its commits are refused, the member joins no new generation until it"
            " calls next(), and the others may have to wait for that up to rebalance_timeout. Let"
            f" the body return when generation.ending is set. Its stack:\n{self.stack}"
        )


@attrs.frozen(kw_only=True)
class TaskStillRunning(Event):
    """A task of asyncio has caught its cancellation, and continues for a second.

    Attributes:
        task: the task's function.
        stack: where it waits.
    """

    level: ClassVar[int] = logging.WARNING
    task: str
    stack: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"task {self.task} is still running after it was cancelled; its commits are refused,"
            " and the member joins no new generation until it returns. It is cancelled again every"
            f" second. Its stack:\n{self.stack}"
        )


@attrs.frozen(kw_only=True)
class ProgramLoopBlocked(Event):
    """asyncio's event loop has not run for a second, so tasks that were cancelled cannot end.

    Attributes:
        stack: what its thread does.
    """

    level: ClassVar[int] = logging.WARNING
    stack: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            "something blocks asyncio's event loop, so the cancelled tasks of the generation cannot"
            " end, and the member joins no new generation until they have. Other members may have"
            " to wait for that up to rebalance_timeout; then the coordinator removes this member."
            f" Put what blocks into asyncio.to_thread(). The loop's thread is here:\n{self.stack}"
        )


@attrs.frozen(kw_only=True)
class _RecordEvent(Event):
    """The root of events about a record that a function of `kgroup.retrying` fails to process.

    Attributes:
        partition: the record's partition.
        offset: its offset.
        attempts: how often it was tried.
    """

    partition: TopicPartition
    offset: int
    attempts: int

    def _record(self) -> str:
        return f"the record at {self.partition} offset {self.offset}"


@attrs.frozen(kw_only=True)
class _RecordFailure(_RecordEvent):
    """The root of events about what the function raised.

    Attributes:
        reason: what the function raised, in one line.
        error: the exception itself, if this event was not read from JSON or from a pickle.
    """

    reason: str
    error: Exception | None = attrs.field(default=None, eq=False, repr=False)

    def __reduce__(self) -> tuple[Callable[[], Event], tuple[()]]:
        """Pickle the event, as log queues do, without its exception, which need not allow it."""
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        return partial(type(self), **{**fields, "error": None}), ()


@attrs.frozen(kw_only=True)
class RecordFailed(_RecordFailure):
    """An attempt to process a record failed, and there will be another one.

    Attributes:
        max_attempts: the most attempts that a record gets.
        pause: the seconds until the next attempt.
    """

    level: ClassVar[int] = logging.WARNING
    max_attempts: int
    pause: float

    @property
    def logged_error(self) -> Exception | None:
        """That of the first attempt; the others usually raise the same."""
        return self.error if self.attempts == 1 else None

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"attempt {self.attempts} of {self.max_attempts} to process {self._record()} failed:"
            f" {self.reason}; the next one is in {self.pause:g} s"
        )


@attrs.frozen(kw_only=True)
class ParkingFailed(_RecordEvent):
    """A record could not be written to the topic of dead letters, and will be tried again.

    Its ``attempts`` are those to write it.

    Attributes:
        max_attempts: the most attempts to write a record.
        reason: why it was not written.
        pause: the seconds until the next attempt.
    """

    level: ClassVar[int] = logging.WARNING
    max_attempts: int
    reason: str
    pause: float

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"attempt {self.attempts} of {self.max_attempts} to park {self._record()} failed:"
            f" {self.reason}; the next one is in {self.pause:g} s"
        )


@attrs.frozen(kw_only=True)
class DeadLetterTopicMissing(Event):
    """The topic of dead letters was not found when the first batch was processed.

    If it is missing for good, the first record that keeps failing ends the worker.

    Attributes:
        topic: the topic.
        nearest: the name of the existing topic that is most like it; empty if there is none.
    """

    level: ClassVar[int] = logging.WARNING
    topic: str
    nearest: str = ""

    def message(self) -> str:
        """See ``Event``."""
        near = f" (did you mean {self.nearest}?)" if self.nearest else ""
        return (
            f"the topic of dead letters, {self.topic!r}, does not exist{near}, or the producer's"
            " user may not DESCRIBE it. Unless the brokers create topics automatically, the first"
            f" record that has to be parked will end the worker. Create it: {creation(self.topic)}"
        )


@attrs.frozen(kw_only=True)
class RecordParked(_RecordFailure):
    """A record that kept failing was parked, and its partition goes on with the next one.

    Attributes:
        topic: the topic of dead letters; None if a function of the program has parked the record.
    """

    level: ClassVar[int] = logging.WARNING
    topic: str | None = None

    @property
    def logged_error(self) -> Exception | None:
        """That of the last attempt."""
        return self.error

    def message(self) -> str:
        """See ``Event``."""
        where = "" if self.topic is None else f" in topic {self.topic!r}"
        return f"parked {self._record()}{where} after attempt {self.attempts}: {self.reason}"


@attrs.frozen(kw_only=True)
class RetriesEnded(_RecordEvent):
    """A record that had failed was not tried again, because the generation ends."""

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"{self._record()} is not tried again after attempt {self.attempts}, because the"
            " generation ends; it is not committed, so the next owner reads it"
        )


@attrs.frozen(kw_only=True)
class _BatchEvent(Event):
    """The root of events about a batch that Spark reads.

    Attributes:
        batch_id: the batch's id, derived from the group and the ranges.
        ranges: for each partition, the first offset and the offset after the last.
    """

    batch_id: str
    ranges: Mapping[TopicPartition, tuple[int, int]] = attrs.field(converter=_ranges, hash=False)

    def _batch(self) -> str:
        return f"batch {self.batch_id[:8]}"

    def _partitions(self) -> str:
        return count_of(len(self.ranges), "partition")


@attrs.frozen(kw_only=True)
class BatchDone(_BatchEvent):
    """A batch was processed, and its end offsets were committed.

    Attributes:
        rows: the records that were read, or the offsets if the reader does not count records.
        bytes: about the bytes of their keys, values and headers, or None if the reader does not
            count them.
        planning: the seconds to make the data frame.
        running: the seconds of the program's function, with its Spark jobs.
        committing: the seconds of the commit.
        lag: the offsets that were left to read when end offsets were last polled.
    """

    rows: int
    bytes: int | None
    planning: float
    running: float
    committing: float
    lag: int

    @property
    def rows_per_second(self) -> float:
        """The rows divided by all the seconds of the batch."""
        seconds = self.planning + self.running + self.committing
        return self.rows / seconds if seconds > 0 else 0.0

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"{self._batch()}: {self.rows:,} rows of {self._partitions()} in"
            f" {self.planning + self.running + self.committing:.2f} s"
            f" ({self.rows_per_second:,.0f} rows/s), committed in {1000 * self.committing:.0f} ms,"
            f" lag {self.lag:,}"
        )


@attrs.frozen(kw_only=True)
class BatchFailed(_BatchEvent):
    """The program's function or one of its Spark jobs failed; nothing was committed.

    Attributes:
        running: the seconds until then.
        reason: the exception.
    """

    level: ClassVar[int] = logging.WARNING
    running: float
    reason: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"{self._batch()} of {self._partitions()} failed after {self.running:.2f} s:"
            f" {self.reason}"
        )


@attrs.frozen(kw_only=True)
class BatchCancelled(_BatchEvent):
    """A batch was cancelled, and its Spark tasks have stopped; nothing was committed.

    Attributes:
        running: the seconds until they had stopped.
        reason: the end of the generation, or that the program cancelled the batch.
    """

    running: float
    reason: str

    def message(self) -> str:
        """See ``Event``."""
        return (
            f"{self._batch()} of {self._partitions()} cancelled after {self.running:.2f} s:"
            f" {self.reason}"
        )


@attrs.frozen(kw_only=True)
class UnsafeInterruptHandler(Event):
    """Ctrl-C in a Spark program on trio would break its event loop: PySpark handles SIGINT."""

    level: ClassVar[int] = logging.WARNING

    def message(self) -> str:
        """See ``Event``."""
        return (
            "SIGINT has PySpark's handler, which raises KeyboardInterrupt in whatever code runs,"
            " trio's included: at Ctrl-C the member would not leave the group. Make the session"
            " before trio.run(), and then call signal.signal(signal.SIGINT,"
            " signal.default_int_handler); or receive the signal by trio.open_signal_receiver()"
        )


@attrs.frozen(kw_only=True)
class JobStillRunning(Event):
    """A cancelled batch is still running: its function, or tasks of its Spark jobs.

    Attributes:
        job_group: Spark's job group of the batch.
        thread: the thread of the function.
        stack: the thread's stack, or None if the function has returned.
        tasks: how many tasks are still running, or None if Spark does not say.
        seconds: the time since the batch was cancelled.
    """

    level: ClassVar[int] = logging.WARNING
    job_group: str
    thread: str
    stack: str | None
    tasks: int | None
    seconds: float

    def message(self) -> str:
        """See ``Event``."""
        tasks = "" if self.tasks is None else f", with {self.tasks} tasks"
        stack = "" if self.stack is None else f". Stack of thread {self.thread}:\n{self.stack}"
        return (
            f"job group {self.job_group} was cancelled {self.seconds:.0f} s ago and is still"
            f" running{tasks}; the generation cannot end before it{stack}"
        )
