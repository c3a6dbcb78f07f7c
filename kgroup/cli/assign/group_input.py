"""Reads a group, its topics and members, from JSON.

The format is that of recorded calls of Kafka's assignors (docs/assignors.md): ``topics`` with the
number of partitions and their racks, ``members`` with their subscriptions. Nothing is guessed: a
wrong value is refused by an error that says where it is.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.types import (
    INT32_MAX,
    Claim,
    MemberSubscription,
    TopicInfo,
    TopicPartition,
    text_fault,
)

LONGEST_INPUT: Final = 32 * 1024 * 1024
"""The most bytes of a file or a line; parsed, they take up to 25 times as much memory."""
MOST_PARTITIONS: Final = 1_000_000
"""The most partitions of all topics together; an assignor needs about half a minute for them."""
MOST_MEMBERS: Final = 100_000
_NONE: Final = -1
"""The generation id of a member that was in no generation."""
_NEWEST: Final = 3
"""The newest version of a subscription."""
_SHOWN: Final = 60
"""Characters of a wrong value that an error shows."""


class WrongInputError(ValueError):
    """The input does not describe a group; the text says what is wrong, and where."""


@final
@attrs.frozen(kw_only=True)
class GroupInput:
    """The input of an assignor, and the partitions that members own.

    Attributes:
        topics: the existing topics, by name.
        members: the members' subscriptions as a group leader reads them, sorted by member id.
        claims: the owned partitions of each member that owns any, by member id.
    """

    topics: Mapping[str, TopicInfo]
    members: tuple[MemberSubscription, ...]
    claims: Mapping[str, Claim]


def read_json(text: bytes | str) -> dict[str, Any]:
    """Parse a JSON object without duplicate names.

    Raises:
        WrongInputError: the text is not such an object, or is too long.
    """
    if len(text) > LONGEST_INPUT:
        raise WrongInputError(f"it is longer than {LONGEST_INPUT} bytes")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except WrongInputError:
        raise
    except json.JSONDecodeError as error:
        raise WrongInputError(
            f"it is not JSON: {error.msg} at character {error.pos + 1}"
        ) from error
    except RecursionError as error:
        raise WrongInputError("its arrays and objects are nested too deeply") from error
    except ValueError as error:  # also for bytes that are not UTF-8, and for too long integers
        raise WrongInputError(f"it is not JSON: {error}") from error
    return _object(value, "it")


def read_group(fields: Mapping[str, Any]) -> GroupInput:
    """Read a group from an object; fields other than ``topics`` and ``members`` are ignored.

    Raises:
        WrongInputError: a field is wrong; the text names it.
    """
    listed = _object(_field(fields, "topics", ""), "topics")
    topics = {name: _topic(name, value) for name, value in listed.items()}
    check_partitions(topics)
    members: dict[str, MemberSubscription] = {}
    claims: dict[str, Claim] = {}
    given_members = _array(_field(fields, "members", ""), "members")
    if len(given_members) > MOST_MEMBERS:
        raise WrongInputError(
            f"there are {len(given_members)} members; at most {MOST_MEMBERS} are allowed"
        )
    for number, value in enumerate(given_members):
        where = f"members[{number}]"
        given = _object(value, where)
        member = _member(given, where)
        if member.member_id in members:
            raise WrongInputError(f"{where}.member_id {member.member_id!r} occurs twice")
        members[member.member_id] = member
        claim = _claim(given, member, where)
        if claim.owned:
            claims[member.member_id] = claim
    ordered = sorted(members.values(), key=lambda member: member.member_id)
    return GroupInput(topics=topics, members=tuple(ordered), claims=claims)


def check_partitions(topics: Mapping[str, TopicInfo]) -> None:
    """Refuse groups that would take the assignors too long.

    Raises:
        WrongInputError: there are more than `MOST_PARTITIONS` partitions.
    """
    total = sum(topic.partitions for topic in topics.values())
    if total > MOST_PARTITIONS:
        raise WrongInputError(
            f"the topics have {total} partitions together; at most {MOST_PARTITIONS} are allowed:"
            " leave out some topics"
        )


def _topic(name: str, value: Any) -> TopicInfo:
    where = f"topics.{_text(name, 'a name in topics')}"
    fields = _object(value, where)
    count = _whole(_field(fields, "partitions", where), f"{where}.partitions", 0)
    racks = fields.get("racks")
    if racks is None:
        return TopicInfo(name=name, partitions=count)
    listed = _object(racks, f"{where}.racks")
    if len(listed) != count:
        raise WrongInputError(f"{where}.racks has {len(listed)} partitions, not {count}")
    return TopicInfo(
        name=name,
        partitions=count,
        racks=tuple(
            _texts(_field(listed, str(number), f"{where}.racks"), f"{where}.racks.{number}")
            for number in range(count)
        ),
    )


def _member(fields: Mapping[str, Any], where: str) -> MemberSubscription:
    version = fields.get("version")
    return MemberSubscription(
        member_id=_text(_field(fields, "member_id", where), f"{where}.member_id"),
        group_instance_id=_text_or_none(fields, "group_instance_id", where),
        topics=_texts(_field(fields, "topics", where), f"{where}.topics"),
        user_data=_bytes_or_none(fields, "user_data_b64", where),
        owned=_partitions(fields.get("owned"), f"{where}.owned"),
        generation_id=_generation(fields.get("generation_id"), f"{where}.generation_id"),
        rack_id=_text_or_none(fields, "rack_id", where),
        version=_NEWEST if version is None else _whole(version, f"{where}.version", 0, _NEWEST),
    )


def _claim(fields: Mapping[str, Any], member: MemberSubscription, where: str) -> Claim:
    """The member's owned partitions; an eager member reports them in its user data, if at all."""
    user_data = fields.get("user_data")
    if member.owned or not isinstance(user_data, Mapping):
        return Claim(tuple(member.owned), member.generation_id)
    return Claim(
        _partitions(user_data.get("owned"), f"{where}.user_data.owned"),
        _generation(user_data.get("generation"), f"{where}.user_data.generation"),
    )


def _partitions(value: Any, where: str) -> tuple[TopicPartition, ...]:
    found = []
    for number, item in enumerate(_array([] if value is None else value, where)):
        pair = _array(item, f"{where}[{number}]")
        if len(pair) != 2:
            raise _wrong(f"{where}[{number}]", item, "a topic and a number")
        topic, partition = pair
        found.append(
            TopicPartition(
                _text(topic, f"{where}[{number}][0]"), _whole(partition, f"{where}[{number}][1]", 0)
            )
        )
    return tuple(found)


def _generation(value: Any, where: str) -> int:
    return _NONE if value is None else _whole(value, where, -INT32_MAX - 1)


def _bytes_or_none(fields: Mapping[str, Any], name: str, where: str) -> bytes | None:
    text = _text_or_none(fields, name, where, limited=False)
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WrongInputError(f"{where}.{name} is not base64: {error}") from error


def _text_or_none(
    fields: Mapping[str, Any], name: str, where: str, *, limited: bool = True
) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    return _text(value, f"{where}.{name}", limited=limited)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    items = _array(value, where)
    return tuple(_text(item, f"{where}[{number}]") for number, item in enumerate(items))


def _text(value: Any, where: str, *, limited: bool = True) -> str:
    if not isinstance(value, str):
        raise _wrong(where, value, "a string")
    if limited and (fault := text_fault(value)):
        raise WrongInputError(f"{where} {_short(value)} {fault}")
    return value


def _whole(value: Any, where: str, least: int, most: int = INT32_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(where, value, f"a whole number from {least} to {most}")
    return value


def _field(fields: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in fields:
        raise WrongInputError(f"{where or 'it'} has no {name!r}")
    return fields[name]


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    return value


def _array(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _wrong(where, value, "an array")
    return value


def _wrong(where: str, value: Any, wanted: str) -> WrongInputError:
    return WrongInputError(f"{where} is {_short(value)}, not {wanted}")


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'an array' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise WrongInputError(f"the name {_short(twice)} occurs twice in one object")
    return fields


def _finite(text: str) -> float:
    """Parse a float; 1e999 would become an infinity, which JSON cannot represent."""
    number = float(text)
    if not math.isfinite(number):
        raise WrongInputError(f"the number {_short(text)} is too large for a float")
    return number


def _no_constant(name: str) -> Any:
    raise WrongInputError(f"{name} is not JSON")
