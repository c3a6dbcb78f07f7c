"""The values of a consumer group: partitions, offsets, assignments, subscriptions, memberships.

They are frozen, and hashable if their parts are. This module does no I/O.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, final
from uuid import UUID

import attrs
from attrs import validators

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
LONGEST_TOPIC: Final = 249
"""The most characters of a topic's name (Kafka's ``Topic.MAX_NAME_LENGTH``)."""
LONGEST_TEXT: Final = 2**15 - 1
"""The most bytes of a STRING in Kafka's protocol."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_fault(topic: object) -> str | None:
    """What is wrong with a topic's name by the rules of Kafka's ``Topic.validate``, or None."""
    if not isinstance(topic, str):
        return f"is a {type(topic).__name__}, not a str"
    if not topic:
        return "is empty"
    if topic in (".", ".."):
        return "is '.' or '..'"
    if len(topic) > LONGEST_TOPIC:
        return f"has {len(topic)} characters, more than {LONGEST_TOPIC}"
    if not _TOPIC.fullmatch(topic):
        return "has a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def text_fault(text: str) -> str | None:
    """Why a text cannot be a STRING of Kafka's protocol, or None if it can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "cannot be encoded in UTF-8"
    return f"has {size} bytes in UTF-8, more than {LONGEST_TEXT}" if size > LONGEST_TEXT else None


@final
@attrs.frozen(order=True)
class TopicPartition:
    """One partition of a topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def name_fault(topic: str) -> str | None:
    """What is wrong with the name of a partition's topic, or None."""
    fault = topic_fault(topic)
    return f"the topic's name {fault}" if fault else None


def number_fault(number: int) -> str | None:
    """Why a number cannot be a partition's, or None if it can."""
    return None if 0 <= number <= INT32_MAX else f"its number is not 0 to {INT32_MAX}"


def partition_fault(name: TopicPartition) -> str | None:
    """Why no cluster can have such a partition, or None if one can."""
    return name_fault(name.topic) or number_fault(name.partition)


def _whole(least: int, most: int) -> Callable[[object, attrs.Attribute[int], object], None]:
    def check(_: object, attribute: attrs.Attribute[int], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{attribute.name}={value!r} is refused: it must be an int")
        if not least <= value <= most:
            raise ValueError(f"{attribute.name}={value} is refused: it must be {least} to {most}")

    return check


def as_int(value: Any) -> Any:
    """A converter: an object that has ``__index__``, as numpy's ints do, as an int.

    Any other value is returned unchanged, so that the field's validator refuses it.
    """
    if type(value) is int or isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except Exception:  # noqa: BLE001 # whatever the object's own __index__ raises
        return value


def _short_text(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if text_fault(value):
        raise ValueError(f"{attribute.name}={value!r:.100} is refused: it {text_fault(value)}")


@final
@attrs.frozen
class OffsetAndMetadata:
    """An offset to commit, with its leader epoch and metadata.

    Attributes:
        offset: the offset of the next record to read (the last processed offset + 1), from 0 to
            2**63-1.
        leader_epoch: the leader epoch of the last processed record (KIP-320). With -1, a commit has
            the one that the generation knows of that record, if it does.
        metadata: any text, which the broker stores with the offset; at most 32767 bytes in UTF-8,
            and no more than the broker allows (``offset.metadata.max.bytes``, 4096 by default).

    Raises:
        TypeError | ValueError: no request can carry a value; the error names the field.
    """

    offset: int = attrs.field(converter=as_int, validator=_whole(0, INT64_MAX))
    leader_epoch: int = attrs.field(default=-1, converter=as_int, validator=_whole(-1, INT32_MAX))
    metadata: str = attrs.field(default="", validator=[validators.instance_of(str), _short_text])


@final
@attrs.frozen
class EpochEnd:
    """Where the records of a leader epoch end in a log (KIP-320).

    Attributes:
        offset: the offset after the last record of that epoch and of those before it.
        leader_epoch: the epoch of that record, or the one that was asked for.
    """

    offset: int
    leader_epoch: int


@final
@attrs.frozen
class BrokerAddress:
    """A broker's node id and address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.host}:{self.port}"


@final
@attrs.frozen(kw_only=True)
class TopicInfo:
    """A topic as an assignor and the partition watcher see it.

    Attributes:
        name: the topic's name.
        partitions: how many partitions it has; they are numbered from 0.
        racks: for every partition, the racks of its replicas; empty if no broker has a rack.
        topic_id: the topic's id, or None if the broker does not send it.
    """

    name: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    topic_id: UUID | None = None


@final
@attrs.frozen(kw_only=True)
class MemberSubscription:
    """A member's subscription, as the group's leader receives it in the JoinGroup response.

    Attributes:
        member_id: the member's id.
        group_instance_id: its static identity (KIP-345), or None.
        topics: the topics that it subscribes to.
        user_data: the data of its assignor, or None.
        owned: the partitions that it owned when it joined (since version 1).
        generation_id: the generation in which it owned them, or -1 (since version 2).
        rack_id: its rack, or None (since version 3).
        version: the version of its ConsumerProtocolSubscription.
    """

    member_id: str
    group_instance_id: str | None = None
    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation_id: int = -1
    rack_id: str | None = None
    version: int = 3


@final
@attrs.frozen
class Claim:
    """A member's last assignment, which it may report when it joins again (KIP-429, KIP-792).

    Attributes:
        owned: the partitions.
        generation_id: the coordinator's id of the generation in which it owned them.
        lost: whether it has lost its membership since, so that others may own the partitions now.
    """

    owned: tuple[TopicPartition, ...]
    generation_id: int
    lost: bool = False


def _in_order(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    # The leader decides how many partitions there are: up to 260,000 in one assignment. To sort so
    # many attrs objects or tuples in one call would hold the interpreter's lock, and so block the
    # event loop, for hundreds of milliseconds. Sorting ints, topic by topic, is faster, and takes
    # one pass if they are in order already.
    topics: dict[str, dict[int, TopicPartition]] = {}
    for name in partitions:
        topics.setdefault(name.topic, {})[name.partition] = name
    return tuple(
        numbers[number] for _, numbers in sorted(topics.items()) for number in sorted(numbers)
    )


@final
class Assignment(Collection[TopicPartition]):
    """The partitions of one member in one generation; a sorted collection that cannot be changed.

    It is no attrs class: ``attrs.asdict`` of an event that has one would convert the members of its
    sets to dicts, which no set can have.

    Args:
        partitions: the partitions, in any order.
        previous: the partitions of the generation that the program had before this one.
        retained: those of them that no other member can have owned since then; None means all.
    """

    __slots__ = ("_kept", "_owned", "_partitions", "_previous")

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        previous: Iterable[TopicPartition] = (),
        retained: Iterable[TopicPartition] | None = None,
    ) -> None:
        self._partitions = _in_order(partitions)
        self._previous = frozenset(previous)
        self._owned = frozenset(self._partitions)
        self._kept = self._owned & self._previous
        if retained is not None:
            self._kept &= frozenset(retained)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions."""
        return self._partitions

    @property
    def previous(self) -> frozenset[TopicPartition]:
        """The partitions of the generation that the program had before this one."""
        return self._previous

    @property
    def added(self) -> frozenset[TopicPartition]:
        """The partitions that the member did not own before, or had lost since.

        After a loss, such as an expired session, these are all of them: other members may have
        read and committed meanwhile.
        """
        return self._owned - self._kept

    @property
    def kept(self) -> frozenset[TopicPartition]:
        """The partitions that the member owned before, and no other member since."""
        return self._kept

    @property
    def removed(self) -> frozenset[TopicPartition]:
        """The partitions that the member owned before and no longer owns."""
        return self.previous - self._owned

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._owned

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignment):
            return NotImplemented
        return self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[object, ...]:
        return self._partitions, self._previous, self._kept

    def __repr__(self) -> str:
        return f"Assignment(partitions={self._partitions!r})"

    def topics(self) -> tuple[str, ...]:
        """The topics of the partitions, sorted."""
        return tuple(sorted({partition.topic for partition in self.partitions}))


@final
@attrs.frozen(kw_only=True)
class Membership:
    """A member's place in one generation of its group, as the JoinGroup response gives it.

    Attributes:
        group_id: the group.
        member_id: the member's id.
        group_instance_id: its static identity, or None.
        generation_id: the coordinator's id of the generation. Ids can repeat after a crash of the
            coordinator, so they give no order; ``epoch`` does.
        epoch: kgroup's own number of the generation, which always increases in a ConsumerGroup.
        assignor: the name of the assignor that the group chose (``protocol_name``).
        leader: whether this member computes the assignment.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    epoch: int
    assignor: str
    leader: bool

    def __str__(self) -> str:
        static = f" (instance {self.group_instance_id!r})" if self.group_instance_id else ""
        return (
            f"member {self.member_id!r}{static} of group {self.group_id!r}"
            f" in generation {self.generation_id}"
        )


@final
class IsolationLevel(enum.Enum):
    """Which records of transactions are read (KIP-98)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


IsolationLevelName = Literal["read_uncommitted", "read_committed"]
"""The values of `IsolationLevel`. Settings name such values beside ``str``, so that editors offer
them, and type checkers also accept a text that a program has read."""


@final
class AutoOffsetReset(enum.Enum):
    """Where a partition without a usable offset starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


OffsetResetName = Literal["earliest", "latest", "error"]
"""The values of `AutoOffsetReset`."""


@final
class Cause(enum.Enum):
    """Why a generation ended; ``can_commit`` says whether its partitions were revoked or lost."""

    REBALANCE = "rebalance"
    FENCED = "fenced"
    MEMBERSHIP_LOST = "membership lost"
    TASK_RETURNED = "task returned"
    TASK_RAISED = "task raised"
    PARTITIONS_CHANGED = "partitions changed"
    SUBSCRIPTION_CHANGED = "subscription changed"
    COORDINATOR_LOST = "coordinator lost"
    PROCESSING_STUCK = "processing stuck"
    CLOSED = "closed"
    CANCELLED = "cancelled"

    @property
    def can_commit(self) -> bool:
        """True if the coordinator still accepts commits (revoked), False if not (lost)."""
        return self not in _LOST


_LOST: Final = frozenset(
    {Cause.FENCED, Cause.MEMBERSHIP_LOST, Cause.COORDINATOR_LOST, Cause.CANCELLED}
)


@final
@attrs.frozen
class End:
    """The end of a generation: its cause, the details in words, and the error if there was one."""

    cause: Cause
    detail: str = ""
    error: BaseException | None = attrs.field(default=None, eq=False)

    @property
    def can_commit(self) -> bool:
        """Whether a commit with the generation's id can still succeed."""
        return self.cause.can_commit

    def __str__(self) -> str:
        return f"{self.cause.value}: {self.detail}" if self.detail else self.cause.value


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition numbers of each topic, all sorted, as requests name them."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return {topic: sorted(numbers) for topic, numbers in sorted(topics.items())}


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
"""The offsets of a commit: for each partition, the offset of the next record to read."""

MemberAssignments = Mapping[str, Sequence[TopicPartition]]
"""An assignment of the whole group: for each member id, its partitions."""
