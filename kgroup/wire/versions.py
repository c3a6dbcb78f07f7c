"""Which version of each request kgroup sends: its own range, and the choice with a broker's range.

These are decisions without I/O; `kgroup.wire.connection` requests the broker's ranges. kio knows
more versions than kgroup uses. A version is in the table only if it means the same to the client's
code as the others.

Not here: the versions that the embedded broker offers (``kgroup.broker.apis``), and those of the
subscription and the assignment inside JoinGroup and SyncGroup (``kgroup.wire.consumer_protocol``).

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


_KIB: Final = 1024
_MIB: Final = 1024 * _KIB


@final
@attrs.frozen
class SupportedRequest:
    """The versions of one request that kgroup's client supports, and the limit of its response.

    A decoded response takes up to twenty times its bytes as objects, so a response that is short
    by nature has a small limit. Responses about partitions have some 50 bytes for each, or up to
    4 KiB with their metadata.

    Attributes:
        lowest: the first version.
        highest: the last version.
        max_response: the size of the largest response, in bytes.
        why_lowest: what the versions before the first lack.
        why_highest: why later versions are not supported, or what the last one added.
    """

    lowest: int
    highest: int
    max_response: int
    why_lowest: str
    why_highest: str


#: Every request of the client, those of SASL included. Brokers from Kafka 2.5 on support a version
#: of each.
SUPPORTED_REQUESTS: Final[Mapping[str, SupportedRequest]] = {
    api: SupportedRequest(*row)
    for api, row in {
        "api_versions": (0, 4, 64 * _KIB, "the fallback that every broker supports", "KIP-1022"),
        "metadata": (4, 13, 64 * _MIB, "auto-creation can be switched off", "error code, KIP-1102"),
        "find_coordinator": (0, 6, 64 * _KIB, "a group by its name", "v4 and up: by list, KIP-699"),
        "join_group": (2, 9, 100 * _MIB, "rebalance time-out", "skip_assignment, KIP-814"),
        "sync_group": (0, 5, 16 * _MIB, "all fields of a dynamic member", "protocol name, KIP-559"),
        "heartbeat": (1, 4, 4 * _KIB, "throttle time, KIP-124", "flexible, KIP-482"),
        "leave_group": (0, 5, 64 * _KIB, "one member", "a reason, KIP-800"),
        "offset_commit": (2, 9, 16 * _MIB, "the first by coordinators", "v10 has topic ids only"),
        "offset_fetch": (7, 9, 64 * _MIB, "require_stable, KIP-447", "v10 has topic ids only"),
        "list_offsets": (1, 10, 16 * _MIB, "one offset a partition", "a time-out, KIP-1075"),
        "offset_for_leader_epoch": (3, 4, 16 * _MIB, "open to consumers", "flexible, KIP-482"),
        "describe_groups": (0, 6, 100 * _MIB, "state and members", "missing groups, KIP-1043"),
        "sasl_handshake": (1, 1, 64 * _KIB, "authentication in framed requests", "the last one"),
        "sasl_authenticate": (0, 2, 1 * _MIB, "the first", "flexible, KIP-482"),
    }.items()
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
    supported = SUPPORTED_REQUESTS[api]
    highest = supported.highest if max_version is None else min(supported.highest, max_version)
    ours = f"kgroup supports {kafka_name(api)} v{supported.lowest} to v{highest}"
    if (theirs := offered.get(API_KEYS[api])) is None:
        raise UnsupportedVersionError(
            f"{ours}; {broker} does not support it; use another broker, or see what stands between",
            kafka_name(api),
        )
    version = min(highest, theirs[1])
    if version < max(supported.lowest, theirs[0]):
        older = theirs[1] < supported.lowest
        advice = "upgrade the broker" if older else "upgrade kgroup"
        why = f" (v{supported.lowest} brought: {supported.why_lowest})" if older else ""
        raise UnsupportedVersionError(
            f"{ours}{why}; {broker} supports v{theirs[0]} to v{theirs[1]}: {advice}",
            kafka_name(api),
        )
    return version
