"""Checks of brokers' responses, and their conversion to kgroup's values.

The codec has decoded the bytes, so every field has its type; this module checks that the values are
possible. Without it, an impossible response would surface as an ``IndexError`` in the layers above.
INVARIANT: a function here returns a value on which the layers above can rely, or raises an
`InvalidResponseError` that says what is wrong, or the `BrokerError` of the response's error code.

The error policy decides what follows. Bytes of other members inside responses are checked by
``kgroup.wire.consumer_protocol`` and ``kgroup.generation.received_assignment``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from kgroup.addresses import host_fault, port_fault
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.types import (
    INT32_MAX,
    BrokerAddress,
    EpochEnd,
    OffsetAndMetadata,
    TopicPartition,
    text_fault,
    topic_fault,
)
from kgroup.wire.broker_connection import InvalidResponseError

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_SHOWN: Final = 5


def coordinator(group_id: str, answer: Any) -> BrokerAddress:
    """The coordinator in a FindCoordinator response.

    Raises:
        InvalidResponseError: it names no coordinator, or one with an impossible address.
        BrokerError: it is an error.

    Source: KIP-699 for the form with several keys.
    """
    found = answer
    if hasattr(answer, "coordinators"):
        ours = [item for item in answer.coordinators if item.key == group_id]
        if len(ours) != 1:
            raise InvalidResponseError(f"names {len(ours)} coordinators of group {group_id!r}")
        found = ours[0]
    if found.error_code:
        raise broker_error(Request.FIND_COORDINATOR, int(found.error_code), f"group {group_id!r}")
    host, port, node_id = str(found.host), int(found.port), int(found.node_id)
    if fault := host_fault(host):
        raise InvalidResponseError(f"names a coordinator whose host {host!r:.80} {fault}")
    if fault := port_fault(port):
        raise InvalidResponseError(f"names a coordinator whose port {port} {fault}")
    if node_id < 0:
        raise InvalidResponseError(f"names a coordinator with the node id {node_id}")
    return BrokerAddress(node_id, host, port)


def check_join(answer: Any, assignors: Collection[str], protocol_type: str) -> None:
    """Check a JoinGroup response that has no error code.

    Raises:
        InvalidResponseError: it has no member id, an impossible generation id, an assignor that was
            not offered, or a leader that its list of members does not have exactly once.
    """
    if not answer.member_id:
        raise InvalidResponseError("gives an empty member id")
    if not 0 <= answer.generation_id <= INT32_MAX:
        raise InvalidResponseError(f"gives the generation id {answer.generation_id}")
    if answer.protocol_name not in assignors:
        raise InvalidResponseError(
            f"chooses the assignor {answer.protocol_name!r:.80}, which was not offered"
        )
    if getattr(answer, "protocol_type", None) not in (None, protocol_type):
        raise InvalidResponseError(f"has the protocol type {answer.protocol_type!r:.80}")
    is_leader = answer.leader == answer.member_id and not getattr(answer, "skip_assignment", False)
    if not is_leader and not answer.members:
        return
    listed = [member.member_id for member in answer.members]
    if answer.member_id not in listed:
        raise InvalidResponseError("makes a leader of a member that it does not list")
    if len(set(listed)) != len(listed):
        raise InvalidResponseError("lists a member twice")


def group_of(group_id: str, answer: Any) -> Any:
    """The group of a DescribeGroups response, which may have an error code.

    Raises:
        InvalidResponseError: the response does not have exactly this group.
    """
    groups = [group for group in answer.groups if group.group_id == group_id]
    if len(groups) != 1:
        raise InvalidResponseError(f"describes group {group_id!r} {len(groups)} times")
    return groups[0]


def described(group_id: str, answer: Any) -> Any:
    """The group of a DescribeGroups response.

    Raises:
        InvalidResponseError: the response does not have exactly this group, or lists a member
            twice.
        BrokerError: the group has an error code.
    """
    group = group_of(group_id, answer)
    if group.error_code:
        raise broker_error(Request.DESCRIBE, int(group.error_code), f"group {group_id!r}")
    listed = [member.member_id for member in group.members]
    if len(set(listed)) != len(listed):
        raise InvalidResponseError("lists a member twice")
    return group


def commit_codes(answer: Any, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The error code of each partition in an OffsetCommit response; 0 if it was committed.

    Raises:
        InvalidResponseError: its partitions are not those of the request.
    """
    codes = [
        (TopicPartition(topic.name, item.partition_index), int(item.error_code))
        for topic in answer.topics
        for item in topic.partitions
    ]
    _check_names([name for name, _ in codes], wanted)
    return dict(codes)


def committed_offsets(
    answer: Any, group_id: str, wanted: Collection[TopicPartition], subject: str
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """The committed offset of each partition in an OffsetFetch response; None if there is none.

    Raises:
        InvalidResponseError: its groups or partitions are not those of the request, or an offset is
            impossible.
        BrokerError: the group or a partition has an error code.
    """
    group = answer
    if hasattr(answer, "groups"):
        if [item.group_id for item in answer.groups] != [group_id]:
            named = _listed(item.group_id for item in answer.groups)
            raise InvalidResponseError(f"is about {named}, not about group {group_id!r}")
        group = answer.groups[0]
    if group.error_code:
        raise broker_error(Request.FETCH_OFFSETS, int(group.error_code), subject)
    items = [
        (TopicPartition(topic.name, item.partition_index), item)
        for topic in group.topics
        for item in topic.partitions
    ]
    _check_names([name for name, _ in items], wanted)
    for name, item in items:
        if item.error_code:
            raise broker_error(Request.FETCH_OFFSETS, int(item.error_code), f"{name} of {subject}")
    return {name: _position(name, item) for name, item in items}


def listed_offsets(
    answer: Any, wanted: Collection[TopicPartition], *, may_be_missing: bool
) -> dict[TopicPartition, tuple[int, EpochEnd]]:
    """The error code and the offset of each partition in a ListOffsets response.

    With the offset comes its leader epoch, if the version of the response has that.

    Args:
        answer: the entity that kio decoded.
        wanted: the partitions of the request.
        may_be_missing: whether an offset may be -1, which means that the log has no record of that
            timestamp or later.

    Raises:
        InvalidResponseError: its partitions are not those of the request, or an offset is
            impossible.
    """
    found = {}
    items = [
        (TopicPartition(topic.name, item.partition_index), item)
        for topic in answer.topics
        for item in topic.partitions
    ]
    _check_names([name for name, _ in items], wanted)
    least = _NO_OFFSET if may_be_missing else 0
    for name, item in items:
        if not item.error_code and item.offset < least:
            raise InvalidResponseError(f"gives {name} the offset {item.offset}")
        epoch = max(int(getattr(item, "leader_epoch", _NO_EPOCH)), _NO_EPOCH)
        found[name] = int(item.error_code), EpochEnd(int(item.offset), epoch)
    return found


def epoch_ends(
    answer: Any, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, EpochEnd | None]]:
    """For each partition in an OffsetForLeaderEpoch response its error code, and its epoch's end.

    The end is None if the log does not know the epoch.

    Raises:
        InvalidResponseError: its partitions are not those of the request, or an end is impossible.
    """
    items = [
        (TopicPartition(topic.topic, item.partition), item)
        for topic in answer.topics
        for item in topic.partitions
    ]
    _check_names([name for name, _ in items], wanted)
    found: dict[TopicPartition, tuple[int, EpochEnd | None]] = {}
    for name, item in items:
        offset, epoch = int(item.end_offset), int(item.leader_epoch)
        unknown = offset == _NO_OFFSET or epoch == _NO_EPOCH
        if not item.error_code and not unknown and (offset < 0 or epoch < 0):
            raise InvalidResponseError(f"gives {name} the end {offset} of leader epoch {epoch}")
        end = None if unknown or item.error_code else EpochEnd(offset, epoch)
        found[name] = int(item.error_code), end
    return found


def check_metadata(answer: Any, wanted: Collection[str] | None) -> None:
    """Check a Metadata response.

    The hosts and ports of brokers are not checked, because a broker with an impossible address does
    not affect the others.

    Args:
        answer: the entity that kio decoded.
        wanted: the topics of the request, or None for all.

    Raises:
        InvalidResponseError: it has other topics than the request, the same topic twice, an invalid
            topic name, or impossible numbers of brokers or partitions.
    """
    if any(broker.node_id < 0 for broker in answer.brokers):
        raise InvalidResponseError("names a broker with a negative node id")
    seen: set[str] = set()
    for topic in answer.topics:
        if topic.name is None or topic.name in seen:
            raise InvalidResponseError(f"names topic {topic.name!r:.80} twice, or not at all")
        seen.add(topic.name)
        if wanted is not None and topic.name not in wanted:
            raise InvalidResponseError(
                f"names topic {topic.name!r:.80}, which the request did not name"
            )
        if topic.error_code:
            continue
        if fault := topic_fault(topic.name):
            raise InvalidResponseError(f"names a topic {topic.name!r:.80}, which {fault}")
        numbers = [part.partition_index for part in topic.partitions]
        if len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
            raise InvalidResponseError(f"has impossible partition numbers for topic {topic.name!r}")


def _position(name: TopicPartition, item: Any) -> OffsetAndMetadata | None:
    if item.committed_offset == _NO_OFFSET:
        return None
    if item.committed_offset < 0:
        raise InvalidResponseError(f"gives {name} the committed offset {item.committed_offset}")
    if fault := text_fault(item.metadata or ""):
        raise InvalidResponseError(f"gives {name} metadata that {fault}")
    return OffsetAndMetadata(
        int(item.committed_offset), max(int(item.committed_leader_epoch), -1), item.metadata or ""
    )


def _check_names(answered: list[TopicPartition], wanted: Collection[TopicPartition]) -> None:
    """Check that a response has every requested partition once, and no other."""
    if len(answered) == len(wanted) and set(answered) == set(wanted):
        return
    answered_set, wanted_set = set(answered), set(wanted)
    if missing := sorted(wanted_set - answered_set):
        raise InvalidResponseError(f"leaves out {_listed(missing)}")
    if foreign := sorted(answered_set - wanted_set):
        raise InvalidResponseError(f"names {_listed(foreign)}, which the request did not")
    raise InvalidResponseError("names a partition twice")


def _listed(names: Iterable[object]) -> str:
    words = [f"{name!s:.80}" for name in names]
    more = len(words) - _SHOWN
    return (", ".join(words[:_SHOWN]) or "nothing") + (f" and {more} more" if more > 0 else "")
