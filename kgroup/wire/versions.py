"""Which version of each request kgroup sends: its own range, and the choice with a broker's range.

These are decisions without I/O; `kgroup.wire.connection` requests the broker's ranges. kio knows
more versions than kgroup uses. A version is in the table only if it means the same to the client's
code as the others.

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
"""Kafka's number of every API, by kio's name."""


@final
@attrs.frozen
class VersionRange:
    """The versions of one API that kgroup's client supports.

    Attributes:
        lowest: the first version.
        highest: the last version.
        why_lowest: what the versions before the first lack.
        why_highest: why later versions are not supported, or what the last one added.
    """

    lowest: int
    highest: int
    why_lowest: str
    why_highest: str


#: Every request of the client. Brokers from Kafka 2.5 on support a version of each.
SUPPORTED_VERSIONS: Final[Mapping[str, VersionRange]] = {
    "api_versions": VersionRange(0, 4, "the fallback that every broker supports", "KIP-1022"),
    "metadata": VersionRange(
        4, 13, "auto-creation can be switched off", "KIP-1102, top-level error"
    ),
    "find_coordinator": VersionRange(0, 6, "a group by its name", "v4 and up: by list (KIP-699)"),
    "join_group": VersionRange(
        2, 9, "rebalance time-out and throttle time", "skip_assignment, KIP-814"
    ),
    "sync_group": VersionRange(0, 5, "all fields of a dynamic member", "protocol name, KIP-559"),
    "heartbeat": VersionRange(1, 4, "throttle time, KIP-124", "flexible, KIP-482"),
    "leave_group": VersionRange(0, 5, "one member", "a reason, KIP-800"),
    "offset_commit": VersionRange(
        2, 9, "the first by group coordinators", "v10 names topics by id only"
    ),
    "offset_fetch": VersionRange(7, 9, "require_stable, KIP-447", "v10 names topics by id only"),
    "list_offsets": VersionRange(1, 10, "one offset a partition", "a time-out, KIP-1075"),
    "describe_groups": VersionRange(
        0, 6, "state and members", "an error for a missing group, KIP-1043"
    ),
    "sasl_handshake": VersionRange(
        1, 1, "authentication in framed requests", "there is no later one"
    ),
    "sasl_authenticate": VersionRange(0, 2, "the first", "flexible, KIP-482"),
}


_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
#: The size of the largest response to each request, in bytes. A decoded response takes up to twenty
#: times its bytes as objects, so a response that is short by nature has a small limit. Responses
#: about partitions have some 50 bytes for each, or up to 4 KiB with their metadata.
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
    """Kafka's name of an API: ``JoinGroup`` for ``join_group``."""
    return "".join(word.capitalize() for word in api.split("_"))


def choose_version(
    api: str,
    offered: Mapping[int, tuple[int, int]],
    broker: str,
    max_version: int | None = None,
) -> int:
    """Return the highest version of a request that both sides support.

    Args:
        api: kio's name of the request.
        offered: the broker's lowest and highest version by API number.
        broker: the broker's name in the error.
        max_version: the highest version that the caller can use.

    Raises:
        UnsupportedVersionError: there is none; the text names both ranges.
    """
    supported = SUPPORTED_VERSIONS[api]
    highest = supported.highest if max_version is None else min(supported.highest, max_version)
    ours = f"kgroup supports {kafka_name(api)} v{supported.lowest} to v{highest}"
    if (theirs := offered.get(API_KEYS[api])) is None:
        raise UnsupportedVersionError(f"{ours}; {broker} does not support it")
    version = min(highest, theirs[1])
    if version < max(supported.lowest, theirs[0]):
        older = theirs[1] < supported.lowest
        advice = "upgrade the broker" if older else "upgrade kgroup"
        why = f" (v{supported.lowest} brought: {supported.why_lowest})" if older else ""
        raise UnsupportedVersionError(
            f"{ours}{why}; {broker} supports v{theirs[0]} to v{theirs[1]}: {advice}"
        )
    return version
