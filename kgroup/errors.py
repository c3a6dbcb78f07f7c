"""Every exception of kgroup, in one tree.

``KgroupError`` is the root. Below it, what the reader of a traceback needs to know first:
was it the caller (``UsageError``), the broker's answer (``BrokerError``), the way there
(``TransportError``), or the passing of a generation (``StaleGenerationError``)?

Messages say what happened, to which group, member, generation and partition, what kgroup did
about it, and what the reader can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from kgroup.types import End, TopicPartition

_MOST_SHOWN: Final = 200
"""Characters of a refused value that its error shows."""


def shown(value: object) -> str:
    """A value's repr for an error: one short line, also where the repr itself fails.

    An int of more than 4,300 digits has no repr, and a program's own object may raise in it.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 # whatever the object's own __repr__ raises
        text = f"<{type(value).__name__} that cannot be printed>"
    text = text.replace("\n", " ")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class KgroupError(Exception):
    """The root of all exceptions that kgroup raises."""


# The caller did something that cannot work.


class UsageError(KgroupError):
    """A call that makes no sense here; the program has to change."""


@final
class ConfigError(UsageError, ValueError):
    """A configuration that is refused at construction.

    Attributes:
        field: the field's name.
        value: what was given.
        allowed: what would have been accepted, in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={shown(value)} is refused: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


@final
class ArgumentError(UsageError, TypeError, ValueError):
    """An argument of a wrong type, or out of its range; nothing was done.

    It is a TypeError and a ValueError, so that it is caught where either is expected.

    Attributes:
        argument: its name.
        value: what was given.
        allowed: what would have been accepted, in words.
    """

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        super().__init__(f"{argument}={shown(value)} is refused: {allowed}; nothing was done")
        self.argument = argument
        self.value = value
        self.allowed = allowed


@final
class NotOwnedError(UsageError):
    """A partition that the generation does not own; nothing was sent."""


@final
class OffsetBehindFloorError(UsageError):
    """A commit behind the start position or the last commit; nothing was sent."""


@final
class OffsetBeyondReadError(UsageError):
    """A commit past what the member was given to read; nothing was sent.

    Attributes:
        partition: the partition.
        offset: what was to be committed.
        read: the next offset after the last record that was handed out, or the start position.
    """

    def __init__(self, message: str, partition: TopicPartition, offset: int, read: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.read = read


@final
class InvalidAssignmentError(UsageError):
    """An assignor's answer that no group may follow; it was not sent to the coordinator."""


@final
class AssignorTimeoutError(UsageError):
    """An assignor computed for longer than the group waits for its leader; nothing was sent.

    Attributes:
        assignor: its name.
        thread: the name of the thread in which it may compute on.
    """

    def __init__(self, message: str, assignor: str, thread: str) -> None:
        super().__init__(message)
        self.assignor = assignor
        self.thread = thread


@final
class GroupClosedError(UsageError):
    """The group was closed; it yields no further generation."""


# The generation has passed.


class StaleGenerationError(KgroupError):
    """The generation has ended, or the coordinator has moved on; nothing was committed.

    Attributes:
        end: the end of the generation, if it is known.
    """

    def __init__(self, message: str, end: End | None = None) -> None:
        super().__init__(message)
        self.end = end


@final
class LeaseExpiredError(StaleGenerationError):
    """Membership could not be confirmed in time; nothing was sent.

    By this member's own clock the coordinator may have given its partitions away.
    """


# Commits.


@final
class CommitFailedError(KgroupError):
    """The coordinator refused some partitions of a commit; the others were committed.

    Attributes:
        partitions: for each refused partition the broker's error.
    """

    def __init__(self, message: str, partitions: Mapping[TopicPartition, BrokerError]) -> None:
        super().__init__(message)
        self.partitions = dict(partitions)


@final
class CommitUnknownError(KgroupError):
    """A commit was sent and its answer never came: it may or may not have been applied.

    Attributes:
        end: the end of the generation, where it passed before the outcome was known.
    """

    def __init__(self, message: str, end: End | None = None) -> None:
        super().__init__(message)
        self.end = end


# The broker answered with an error.


class BrokerError(KgroupError):
    """An error code in a broker's answer.

    Attributes:
        code: Kafka's number of the error.
        name: Kafka's name of it, or ``ERROR_<number>`` for one that kgroup does not know.
        request: the request that it answered.
    """

    def __init__(self, code: int, name: str, request: str, message: str = "") -> None:
        super().__init__(message or f"{request} was answered with {name} ({code})")
        self.code = code
        self.name = name
        self.request = request


@final
class MemberIdRequiredError(BrokerError):
    """The coordinator gave a member id to join again with (KIP-394); no fault of anybody's.

    Attributes:
        member_id: the id that it gave.
    """

    def __init__(self, member_id: str, group_id: str) -> None:
        super().__init__(
            79,
            "MEMBER_ID_REQUIRED",
            "JoinGroup",
            f"group {group_id!r} gave the member id {member_id!r} to join again with",
        )
        self.member_id = member_id


class FatalGroupError(BrokerError):
    """A refusal that trying again cannot mend; the group is over.

    It is raised by every later ``next()``, or at the exit of ``async with``.
    """


@final
class FencedInstanceError(FatalGroupError):
    """Another process joined with the same group_instance_id and took this member's place."""


@final
class AuthorizationError(FatalGroupError):
    """The broker does not let this client do what the request asked for."""


@final
class InconsistentProtocolError(FatalGroupError):
    """The group's other members share no assignor, or another protocol type, with this one."""


@final
class GroupFullError(FatalGroupError):
    """The group has as many members as the broker's group.max.size allows."""


@final
class OffsetOutOfRangeError(KgroupError):
    """A position outside of the partition's log.

    A handler sees it only where ``auto_offset_reset`` is ``error``.

    Attributes:
        partition: the partition.
        offset: the position that it does not have, or -1 where the source cannot tell.
    """

    def __init__(self, message: str, partition: TopicPartition, offset: int = -1) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


@final
class NoOffsetError(KgroupError):
    """A partition without a committed offset, where ``auto_offset_reset`` is ``error``."""


@final
class FetchError(KgroupError):
    """Records of a partition cannot be read, and waiting will not change that.

    Attributes:
        partition: the partition, or None where it is not about one.
    """

    def __init__(self, message: str, partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.partition = partition


# The way to the broker.


class TransportError(KgroupError):
    """The exchange with a broker failed before an answer could be read.

    Attributes:
        sent: whether any byte of the request was given to the network. Where False, the
            broker cannot have acted on it.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


@final
class ConnectionLostError(TransportError):
    """The connection could not be opened, or ended before the answer.

    Attributes:
        answer_begun: whether a part of the answer had arrived.
    """

    def __init__(self, message: str, *, sent: bool = False, answer_begun: bool = False) -> None:
        super().__init__(message, sent=sent)
        self.answer_begun = answer_begun


@final
class RequestTimeoutError(TransportError):
    """No answer within the request's deadline; the connection was closed."""


@final
class ProtocolError(TransportError):
    """An answer that is not Kafka's protocol; that connection was closed, no other."""


@final
class UnsupportedVersionError(KgroupError):
    """The broker and kgroup share no version of a request."""
