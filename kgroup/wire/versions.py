"""Which version of each request is spoken: kgroup's own range, and the choice with a broker.

Pure decisions. kio knows more versions than kgroup speaks; a version is in the table only if the
client's code means the same by it. How the broker's ranges are learnt is the connection's.

Source: the message definitions in Kafka's ``clients/src/main/resources/common/message``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, final

import attrs
from kio.schema.index import api_key_map

from kgroup.errors import UnsupportedVersionError

API_KEYS: Final[Mapping[str, int]] = {name: key for key, name in api_key_map.items()}
"""Kafka's number of every API, by kio's name of it."""


@final
@attrs.frozen
class SupportedVersions:
    """The versions of one API that kgroup's client speaks.

    Attributes:
        lowest: the first, and `why_lowest` what the ones before it lack.
        highest: the last, and `why_highest` what holds the client back from later ones, or
            what the last one brought.
    """

    lowest: int
    highest: int
    why_lowest: str
    why_highest: str


#: Every request of the client. A broker of Kafka 2.5 or later speaks one of each.
SUPPORTED_VERSIONS: Final[Mapping[str, SupportedVersions]] = {
    "api_versions": SupportedVersions(0, 4, "the fallback that every broker knows", "KIP-1022"),
    "metadata": SupportedVersions(
        4, 13, "auto-creation can be switched off", "KIP-1102, top-level error"
    ),
    "find_coordinator": SupportedVersions(
        0, 6, "a group by its name", "v4 and up: by list (KIP-699)"
    ),
    "join_group": SupportedVersions(
        2, 9, "rebalance time-out and throttle time", "skip_assignment, KIP-814"
    ),
    "sync_group": SupportedVersions(
        0, 5, "all fields of a dynamic member", "protocol name, KIP-559"
    ),
    "heartbeat": SupportedVersions(1, 4, "throttle time, KIP-124", "flexible, KIP-482"),
    "leave_group": SupportedVersions(0, 5, "one member", "a reason, KIP-800"),
    "offset_commit": SupportedVersions(
        2, 9, "the first by group coordinators", "v10 names topics by id only"
    ),
    "offset_fetch": SupportedVersions(
        7, 9, "require_stable, KIP-447", "v10 names topics by id only"
    ),
    "list_offsets": SupportedVersions(1, 10, "one offset a partition", "a time-out, KIP-1075"),
    "describe_groups": SupportedVersions(
        0, 6, "state and members", "an error where none is, KIP-1043"
    ),
    "sasl_handshake": SupportedVersions(
        1, 1, "authentication in framed requests", "there is no later one"
    ),
    "sasl_authenticate": SupportedVersions(0, 2, "the first", "flexible, KIP-482"),
}


_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
#: The longest answer that is read, in bytes. What is in one takes up to twenty times its bytes as
#: objects, so an answer that is short by nature gets no room for more. Answers about partitions
#: have some 50 bytes for each, with their metadata up to 4 KiB.
MAX_RESPONSE_BYTES: Final[Mapping[str, int]] = {
    "api_versions": 64 * _KIB,
    "metadata": 64 * _MIB,
    "find_coordinator": 64 * _KIB,
    "join_group": 100 * _MIB,
    "sync_group": 16 * _MIB,
    "heartbeat": 4 * _KIB,
    "leave_group": 64 * _KIB,
    "offset_commit": 16 * _MIB,
    "offset_fetch": 64 * _MIB,
    "list_offsets": 16 * _MIB,
    "describe_groups": 100 * _MIB,
    "sasl_handshake": 64 * _KIB,
    "sasl_authenticate": 1 * _MIB,
}


@cache
def kafka_name(api: str) -> str:
    """An API's name as Kafka spells it: ``JoinGroup`` for ``join_group``."""
    return "".join(word.capitalize() for word in api.split("_"))


def choose_version(
    api: str,
    offered: Mapping[int, tuple[int, int]],
    broker: str,
    max_version: int | None = None,
) -> int:
    """The highest version of a request that both sides speak.

    Args:
        api: kio's name of it.
        offered: the broker's lowest and highest version by API number.
        broker: who offers, for the error's text.
        max_version: what the caller can do at most.

    Raises:
        UnsupportedVersionError: there is none; the text names both ranges.
    """
    spoken = SUPPORTED_VERSIONS[api]
    highest = spoken.highest if max_version is None else min(spoken.highest, max_version)
    ours = f"kgroup speaks {kafka_name(api)} v{spoken.lowest} to v{highest}"
    if (theirs := offered.get(API_KEYS[api])) is None:
        raise UnsupportedVersionError(f"{ours}; {broker} does not offer it at all")
    version = min(highest, theirs[1])
    if version < max(spoken.lowest, theirs[0]):
        older = theirs[1] < spoken.lowest
        advice = "upgrade the broker" if older else "a newer kgroup is needed"
        why = f" (v{spoken.lowest} brought: {spoken.why_lowest})" if older else ""
        raise UnsupportedVersionError(
            f"{ours}{why}; {broker} offers v{theirs[0]} to v{theirs[1]}: {advice}"
        )
    return version
