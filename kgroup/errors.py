"""Every exception of kgroup, in one tree.

``KgroupError`` is the root. The classes below it say first where the fault lies: in the calling
program (``UsageError``), in a broker's response (``BrokerError``), in the network
(``TransportError``), or in a generation that has ended (``StaleGenerationError``).

A message says what happened, to which group, member, generation and partition, what kgroup did
about it, and what the reader can do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final, TypeVar, final

from kgroup.types import End, TopicPartition

T = TypeVar("T")
_MOST_SHOWN: Final = 200
"""The most characters of a refused value that an error shows."""
_MOST_LISTED: Final = 20
"""The most items of a list that a text shows."""


def any_repr(value: object) -> str:
    """A value's repr; it works even where ``repr`` itself raises.

    ``repr`` raises for an int of more than 4,300 digits, and may do so for a program's own objects.
    """
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 # whatever the object's own __repr__ raises
        return f"<{type(value).__name__} that cannot be printed>"


def short_repr(value: object) -> str:
    """What `any_repr` says, in one short line."""
    text = any_repr(value).replace("\n", " ")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def any_text(error: BaseException) -> str:
    """An exception's text; empty where its own ``__str__`` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 # whatever the exception's own __str__ raises
        return ""


def entered_again(group_id: str) -> UsageError:
    """The error of a group that is entered a second time."""
    return UsageError(
        f"group {group_id!r}: a ConsumerGroup can be entered only once; make another one"
    )


def in_one_line(error: BaseException) -> str:
    """An exception's class and text in one line; of a group, those of its exceptions.

    It works even where the exception's own ``__str__`` raises.
    """
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        listed = "; ".join(in_one_line(one) for one in error.exceptions[:_MOST_LISTED])
        rest = len(error.exceptions) - _MOST_LISTED
        others = f"; and {count_of(rest, 'more error')}" if rest > 0 else ""
        return f"{name} ({listed}{others})"
    text = " ".join(any_text(error).split())
    return f"{name}: {text}" if text else name


def short_list(
    things: Collection[T],
    word: Callable[[T], str] = str,
    between: str = ", ",
    most: int = _MOST_LISTED,
) -> str:
    """The first items and the number of the others: other members decide how long a list is."""
    more = len(things) - most
    listed = between.join(map(word, islice(things, most)))
    return listed + (f" and {more:,} more" if more > 0 else "")


def count_of(number: int, noun: str) -> str:
    """A number of things, such as ``2 more errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def creation(topic: str) -> str:
    """The command that creates a topic, for errors and events about one that is missing."""
    return f"kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {topic}"


class KgroupError(Exception):
    """The root of all exceptions that kgroup raises."""


# The program made a mistake.


class UsageError(KgroupError):
    """The program made a call that cannot work; the program has to change."""


@final
class ConfigError(UsageError, TypeError, ValueError):
    """A setting does not exist, or has a value that is not allowed; no object was made.

    It is both a TypeError and a ValueError, so that a handler for either one catches it.

    Attributes:
        field: the name of the setting.
        value: the value that the program gave.
        allowed: which values are allowed, in words.
        source: the file that has the setting, or lacks it; empty if a program gave it.
    """

    def __init__(self, field: str, value: object, allowed: str, source: str = "") -> None:
        fault = f"{field}={short_repr(value)} is refused"
        if source:
            fault = f"{source}: {field} is missing" if value is None else f"{source}: {fault}"
        super().__init__(f"{fault}: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
        self.source = source


@final
class ArgumentError(UsageError, TypeError, ValueError):
    """An argument has a wrong type or is out of range; the call did nothing.

    It is both a TypeError and a ValueError, so that a handler for either one catches it.

    Attributes:
        argument: the name of the argument.
        value: the value that the program gave.
        allowed: which values are allowed, in words.
    """

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        super().__init__(f"{argument}={short_repr(value)} is refused: {allowed}; nothing was done")
        self.argument = argument
        self.value = value
        self.allowed = allowed


@final
class NotOwnedError(UsageError):
    """The generation does not own the partition; nothing was sent."""


@final
class OffsetBehindCommitError(UsageError):
    """The offset to commit is less than the start position or the last commit; nothing was sent."""


@final
class OffsetBeyondReadError(UsageError):
    """The offset to commit is past the records that the program was given; nothing was sent.

    Attributes:
        partition: the partition.
        offset: the offset that the program tried to commit.
        read: the offset after the last record that the program was given, or the start position.
    """

    def __init__(self, message: str, partition: TopicPartition, offset: int, read: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.read = read


@final
class InvalidAssignmentError(UsageError):
    """An assignor returned an invalid assignment; it was not sent to the coordinator."""


@final
class AssignorTimeoutError(UsageError):
    """An assignor ran for longer than the group waits for its leader; nothing was sent.

    Attributes:
        assignor: the assignor's name.
        thread: the name of the thread in which the assignor may still be running.
    """

    def __init__(self, message: str, assignor: str, thread: str) -> None:
        super().__init__(message)
        self.assignor = assignor
        self.thread = thread


@final
class GroupClosedError(UsageError):
    """The group was closed; it yields no further generation."""


# The generation has ended.


class StaleGenerationError(KgroupError):
    """The generation has ended, or the coordinator has moved on; the call did nothing.

    A commit that raises it was not applied, or only to the partitions that the text names, which
    the coordinator had stored before. An iteration over a batch that raises it handed out no
    record.

    Attributes:
        end: the end of the generation, if it is known.
    """

    def __init__(self, message: str, end: End | None = None) -> None:
        super().__init__(message)
        self.end = end


@final
class LeaseExpiredError(StaleGenerationError):
    """The coordinator did not confirm the membership in time; nothing was sent or handed out.

    By this member's clock, its session may have expired, and the coordinator may have assigned its
    partitions to other members.
    """


# Commits.


@final
class CommitFailedError(KgroupError):
    """Some partitions of a commit were refused, or not sent; the others were committed.

    Attributes:
        partitions: for each of them the broker's error, or a ``NotSentError``.
    """

    def __init__(self, message: str, partitions: Mapping[TopicPartition, BrokerError]) -> None:
        super().__init__(message)
        self.partitions = dict(partitions)


@final
class CommitUnknownError(KgroupError):
    """A commit was sent and not confirmed in time: the broker may or may not have applied it.

    No response came, or the coordinator's replicas were away.

    Attributes:
        end: the end of the generation, if it ended before the outcome was known.
    """

    def __init__(self, message: str, end: End | None = None) -> None:
        super().__init__(message)
        self.end = end


@final
class StartupTimeoutError(KgroupError):
    """The group's coordinator was not reached within ``startup_timeout``; the group is closed.

    Its cause (``__cause__``) is the last failure, if there was one.
    """


# The broker answered with an error.


class BrokerError(KgroupError):
    """A broker's response has an error code.

    Attributes:
        code: Kafka's number of the error.
        name: Kafka's name of the error, or ``ERROR_<number>`` if kgroup does not know the number.
        request: the name of the request.
    """

    def __init__(self, code: int, name: str, request: str, message: str = "") -> None:
        super().__init__(message or f"{request} was answered with {name} ({code})")
        self.code = code
        self.name = name
        self.request = request


def without_text(error: BaseException) -> str:
    """An error's class, and Kafka's name for it: all that a broker gets to know of an error.

    Brokers log the reasons of JoinGroup and LeaveGroup, for people who may not read the program's
    own log. An error's text can have that of an exception of the program, and so whatever the
    program knows: a path in its vault, a customer's name.
    """
    kind = type(error).__name__
    return f"{kind} ({error.name})" if isinstance(error, BrokerError) else kind


def block_left(error: BaseException | None) -> str:
    """Why a group closes whose block was left, by an exception or without one."""
    return "the block was left" if error is None else f"the block was left by {without_text(error)}"


@final
class NotSentError(BrokerError):
    """A commit was not sent, because the coordinator could not be reached in time.

    It is a value of ``CommitFailedError.partitions``, whose other values are what a broker has
    answered. Its code is that of Kafka's clients for this, which a broker can send as well.
    """

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            13,
            "NETWORK_EXCEPTION",
            "OffsetCommit",
            f"{partition}: the coordinator could not be reached in time, and nothing was sent",
        )


@final
class MemberIdRequiredError(BrokerError):
    """The coordinator assigned a member id, and the member joins again with it (KIP-394).

    This is a normal step of joining; kgroup handles it, and programs never see this error.

    Attributes:
        member_id: the id.
    """

    def __init__(self, member_id: str, group_id: str) -> None:
        super().__init__(
            79,
            "MEMBER_ID_REQUIRED",
            "JoinGroup",
            f"the coordinator of group {group_id!r} assigned the member id {member_id!r}; the"
            " member has to join again with it",
        )
        self.member_id = member_id


class FatalGroupError(BrokerError):
    """The broker refused a request, and a retry cannot help; the group is closed.

    Every later ``next()`` raises it. If the program does not call ``next()`` again, the end of the
    ``async with`` block raises it.
    """


@final
class FencedInstanceError(FatalGroupError):
    """Another process joined with the same ``group_instance_id`` and replaced this member."""


@final
class AuthorizationError(FatalGroupError):
    """This client is not authorized for the request; the text says what to grant.

    From a stream or a batch it says that a partition cannot be read. The group then lives on, and
    if the program reads on, records follow once the permission is granted.
    """


@final
class AuthenticationError(FatalGroupError):
    """The client and a broker do not accept each other: the TLS certificates, or the login.

    ``code`` and ``name`` are Kafka's for a refused login, and ``TLS_CODE`` and TLS_REFUSED for
    certificates, which Kafka has no code for. ``request`` is the step that failed: `LOOKUP` if the
    program's own function gave nothing to log in with.
    """

    TLS_CODE: Final = -100
    LOOKUP: Final = "login lookup"

    @classmethod
    def in_tls(cls, message: str) -> AuthenticationError:
        """The error of a TLS connection that one side refused."""
        return cls(cls.TLS_CODE, "TLS_REFUSED", "TLS handshake", message)


@final
class InconsistentProtocolError(FatalGroupError):
    """This member and the other members have no assignor, or no protocol type, in common."""


@final
class GroupFullError(FatalGroupError):
    """The group has as many members as the broker's ``group.max.size`` allows."""


@final
class UnsupportedVersionError(FatalGroupError):
    """The broker and kgroup have no version of a request in common, so nothing was sent.

    Its code is UNSUPPORTED_VERSION, as if the broker had refused the version. The group closes,
    unless it can continue without the request (docs/recovery.md). From a stream it says that a
    leader cannot be asked where to begin, and from a commit that the coordinator cannot be found.
    """

    def __init__(self, message: str, request: str = "") -> None:
        super().__init__(35, "UNSUPPORTED_VERSION", request, message)


@final
class OffsetOutOfRangeError(KgroupError):
    """A position is outside the partition's log.

    Handlers get this error only if ``auto_offset_reset`` is ``error``.

    Attributes:
        partition: the partition.
        offset: the position, or -1 if the record source does not know it.
        divergent_offset: if the log was truncated, as an unclean leader election does, the offset
            from which on it does not have the records that were read; None otherwise. To skip no
            record of the log as it is now, seek there.
    """

    def __init__(
        self,
        message: str,
        partition: TopicPartition,
        offset: int = -1,
        divergent_offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset


@final
class NoOffsetError(KgroupError):
    """A partition has no committed offset, and ``auto_offset_reset`` is ``error``."""


@final
class FetchError(KgroupError):
    """Records cannot be read, and waiting does not help.

    Attributes:
        partition: the partition, or None if the error is not about one partition.
    """

    def __init__(self, message: str, partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.partition = partition


# No valid response arrived.


class TransportError(KgroupError):
    """A request to a broker failed before its response could be read.

    Attributes:
        sent: whether any byte of the request was passed to the network. If False, the broker
            cannot have acted on the request.
        failure: what happened: the error's text without the hint.
        hint: what may be wrong with the port or the protocol, if the other side did not respond as
            a Kafka broker does; otherwise empty. The error's text ends with it.
    """

    def __init__(self, message: str, *, sent: bool = False, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.sent = sent
        self.failure = message
        self.hint = hint


@final
class ConnectionLostError(TransportError):
    """The connection could not be opened, or ended before the response.

    Attributes:
        answer_begun: whether a part of the response had arrived.
    """

    def __init__(
        self, message: str, *, sent: bool = False, answer_begun: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, sent=sent, hint=hint)
        self.answer_begun = answer_begun


@final
class RequestTimeoutError(TransportError):
    """No response arrived before the request's deadline; the connection was closed."""


@final
class ProtocolError(TransportError):
    """A response does not follow Kafka's protocol; the connection that it came on was closed."""


@final
class DeadLetterError(KgroupError):
    """A record could not be written to the topic of dead letters, so it was not committed."""
