"""How a transcript is worded: stand-ins for ids, and one piece of text per answer.

Left out on purpose: throttle times, error messages, and the difference between a null and an
empty string. Lists whose order Kafka leaves open (members, partitions, groups) are sorted.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer

from tests.conformance.wire import Fields

_GENERATED_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SUBSCRIPTION_VERSION: Final = b"\0\0"
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_NO_GENERATION: Final = -1
_LONGEST_METADATA: Final = 32


class Names:
    """Stand-ins for what differs from run to run: member ids and group ids.

    A member id is named after the client that received it: `<m1>`, and `<m1.2>` for a second id
    of the same client. Transcripts are worded only after their scenario has ended, so an id that
    a leader hears of before its owner does still gets its owner's name.
    """

    def __init__(self) -> None:
        self._members: dict[str, str] = {}
        self._groups: dict[str, str] = {}

    def own_member(self, label: str, member_id: str) -> None:
        """Name a member id after the client that received it."""
        if member_id and member_id not in self._members:
            earlier = sum(name.split(".")[0] == label for name in self._members.values())
            self._members[member_id] = f"{label}.{earlier + 1}" if earlier else label

    def own_group(self, label: str, group_id: str) -> None:
        """Name a group id."""
        self._groups[group_id] = label

    def owns_group(self, group_id: str) -> bool:
        """Whether a group is one of the scenario's."""
        return group_id in self._groups

    def member_ids(self) -> list[str]:
        """Every member id that was named."""
        return list(self._members)

    def group_ids(self) -> list[str]:
        """Every group id that was named."""
        return list(self._groups)

    def scrub(self, text: str) -> str:
        """Free text with every id replaced by its stand-in."""
        for ids in (self._members, self._groups):
            for long, short in ids.items():
                text = text.replace(long, short) if long else text
        return text

    def member(self, member_id: str) -> str:
        """The stand-in of a member id."""
        if not member_id:
            return "-"
        if member_id in self._members:
            return f"<{self._members[member_id]}>"
        return "<unknown>" if _GENERATED_ID.search(member_id) else repr(member_id)

    def group(self, group_id: str) -> str:
        """The stand-in of a group id."""
        return self._groups.get(group_id, repr(group_id))


def encode_subscription(topics: Iterable[str], user_data: str) -> bytes:
    """The metadata that a consumer sends for each of its protocols (ConsumerProtocol v0)."""
    buffer = io.BytesIO()
    buffer.write(_SUBSCRIPTION_VERSION)
    subscription = ConsumerProtocolSubscription(
        topics=tuple(TopicName(topic) for topic in topics), user_data=user_data.encode()
    )
    entity_writer(ConsumerProtocolSubscription)(buffer, subscription)
    return buffer.getvalue()


def show_bytes(data: bytes) -> str:
    """`t1,t2/user data` for a consumer's subscription, else text, else hexadecimal digits."""
    if not data:
        return "(empty)"
    if not data.startswith(_SUBSCRIPTION_VERSION):
        return data.decode() if data.isascii() else data.hex()
    try:
        subscription, _ = entity_reader(ConsumerProtocolSubscription)(data, 2)
        return f"{','.join(subscription.topics)}/{(subscription.user_data or b'').decode()}"
    except Exception:  # noqa: BLE001 kio has no error of its own for what it cannot read
        return data.hex()


def show_error(answer: Fields) -> str:
    """The name of the error that an answer, or a part of one, carries."""
    return str(answer["error_code"].name).upper()


def show_answer(api: str, answer: Fields, names: Names) -> str:
    """One piece of text for an answer."""
    return _SHOW[api](answer, names)


def show_partitions(topics: Iterable[Fields], show: Callable[[Fields], str]) -> str:
    """Partitions as `topic-index` and what is shown of each, sorted."""
    return " ".join(
        f"{topic['name']}-{partition['partition_index']}{show(partition)}"
        for topic in sorted(topics, key=lambda topic: str(topic["name"]))
        for partition in sorted(topic["partitions"], key=lambda item: int(item["partition_index"]))
    )


def _words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _protocol(answer: Fields) -> str:
    names = [answer.get("protocol_type"), answer.get("protocol_name")]
    return "/".join(name for name in names if name)


def _instance(member: Fields) -> str:
    instance = member.get("group_instance_id")
    return "" if instance is None else f"@{instance}"


def _join(answer: Fields, names: Names) -> str:
    members = sorted(
        f"{names.member(member['member_id'])}{_instance(member)}:{show_bytes(member['metadata'])}"
        for member in answer["members"]
    )
    good = show_error(answer) == "NONE"
    return _words(
        show_error(answer),
        f"member={names.member(answer['member_id'])}",
        f"generation={answer['generation_id']}"
        if good or answer["generation_id"] != _NO_GENERATION
        else None,
        f"protocol={_protocol(answer)}" if good or _protocol(answer) else None,
        f"leader={names.member(answer['leader'])}" if good or answer["leader"] else None,
        f"members=[{' '.join(members)}]" if good or members else None,
        "skip_assignment" if answer.get("skip_assignment") else None,
    )


def _sync(answer: Fields, names: Names) -> str:
    good = show_error(answer) == "NONE"
    return _words(
        show_error(answer),
        f"protocol={_protocol(answer)}" if _protocol(answer) else None,
        f"assignment={show_bytes(answer['assignment'])}" if good or answer["assignment"] else None,
    )


def _leave(answer: Fields, names: Names) -> str:
    members = [
        f"{names.member(member['member_id'])}{_instance(member)}:{show_error(member)}"
        for member in answer.get("members", ())
    ]
    return _words(show_error(answer), f"[{' '.join(members)}]" if "members" in answer else None)


def _commit(answer: Fields, names: Names) -> str:
    return show_partitions(answer["topics"], lambda partition: f":{show_error(partition)}")


def _fetched(partition: Fields) -> str:
    if show_error(partition) != "NONE":
        return f":{show_error(partition)}"
    offset, metadata = partition["committed_offset"], partition["metadata"] or ""
    epoch = partition.get("committed_leader_epoch", _NO_EPOCH)
    if len(metadata) > _LONGEST_METADATA:
        metadata = f"{len(metadata)} characters"
    return _words(
        "=none" if offset == _NO_OFFSET else f"={offset}",
        f"({metadata})" if metadata else None,
        f"(epoch {epoch})" if epoch != _NO_EPOCH else None,
    )


def _fetch(answer: Fields, names: Names) -> str:
    if "groups" in answer:
        return "; ".join(
            sorted(f"{names.group(g['group_id'])}: {_fetch(g, names)}" for g in answer["groups"])
        )
    return _words(
        show_error(answer) if "error_code" in answer else None,
        show_partitions(answer["topics"], _fetched),
    )


def _described_member(member: Fields, names: Names) -> str:
    return _words(
        f"{names.member(member['member_id'])}{_instance(member)}",
        f"client={member['client_id']}",
        f"metadata={show_bytes(member['member_metadata'])}" if member["member_metadata"] else None,
        f"assignment={show_bytes(member['member_assignment'])}"
        if member["member_assignment"]
        else None,
    )


def _describe(answer: Fields, names: Names) -> str:
    return "; ".join(
        sorted(
            _words(
                f"{names.group(group['group_id'])}: {show_error(group)} {group['group_state']}",
                f"type={group['protocol_type'] or '-'} protocol={group['protocol_data'] or '-'}",
                f"members={sorted(_described_member(m, names) for m in group['members'])}".replace(
                    "'", ""
                ),
            )
            for group in answer["groups"]
        )
    )


def _list(answer: Fields, names: Names) -> str:
    groups = sorted(
        _words(
            f"{names.group(group['group_id'])} type={group['protocol_type'] or '-'}",
            f"state={group['group_state']}" if "group_state" in group else None,
            f"kind={group['group_type']}" if "group_type" in group else None,
        )
        for group in answer["groups"]
        if names.owns_group(group["group_id"])
    )
    return _words(show_error(answer), f"[{'; '.join(groups)}]")


def _delete(answer: Fields, names: Names) -> str:
    return " ".join(
        sorted(f"{names.group(g['group_id'])}:{show_error(g)}" for g in answer["results"])
    )


def _delete_offsets(answer: Fields, names: Names) -> str:
    partitions = show_partitions(answer["topics"], lambda partition: f":{show_error(partition)}")
    return _words(show_error(answer), partitions)


def _error_only(answer: Fields, names: Names) -> str:
    return show_error(answer)


_SHOW: Final[Mapping[str, Callable[[Any, Names], str]]] = {
    "add_offsets_to_txn": _error_only,
    "delete_groups": _delete,
    "describe_groups": _describe,
    "end_txn": _error_only,
    "heartbeat": _error_only,
    "init_producer_id": _error_only,
    "join_group": _join,
    "leave_group": _leave,
    "list_groups": _list,
    "offset_commit": _commit,
    "offset_delete": _delete_offsets,
    "offset_fetch": _fetch,
    "sync_group": _sync,
    "txn_offset_commit": _commit,
}
