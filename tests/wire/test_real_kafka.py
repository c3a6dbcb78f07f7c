"""Apache Kafka accepts every request of the client, in every version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kgroup.errors import UnsupportedVersionError
from kgroup.testing.kafka import KafkaAddress
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.connection import Connection
from kgroup.wire.consumer_protocol import encode_assignment, encode_subscription
from kgroup.wire.versions import SUPPORTED_REQUESTS

SECONDS = timedelta(seconds=10)
GROUP = "wire-smoke"


@pytest.fixture
async def connection(real_kafka: KafkaAddress) -> AsyncIterator[Connection]:
    """A connection to the broker."""
    host, port = real_kafka.bootstrap_servers.rsplit(":", 1)
    opened = await Connection.open(open_tcp, host, int(port), client_id="wire", timeout=30)
    yield opened
    await opened.aclose()


def fields_of(api: str, version: int) -> dict[str, Any]:
    """A small valid request of each API, for a group without members."""
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "unknown"}
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    offsets: dict[str, Any] = {"group_id": GROUP, "topics": []}
    requests: dict[str, dict[str, Any]] = {
        "api_versions": {"client_software_name": "kgroup", "client_software_version": "test"}
        if version >= 3
        else {},
        "metadata": {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
        "find_coordinator": {"key": GROUP}
        if version < 4
        else {"key_type": 0, "coordinator_keys": [GROUP]},
        "describe_groups": {
            "groups": [GROUP],
            **({"include_authorized_operations": False} if version >= 3 else {}),
        },
        "join_group": {
            "group_id": GROUP,
            "session_timeout": SECONDS,
            "rebalance_timeout": SECONDS,
            "member_id": "unknown",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": encode_subscription(topics=["t"])}],
        },
        "sync_group": member
        | {"assignments": [{"member_id": "unknown", "assignment": encode_assignment(())}]}
        | ({"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}),
        "heartbeat": member,
        "leave_group": {"group_id": GROUP}
        | ({"member_id": "unknown"} if version < 3 else {"members": [{"member_id": "unknown"}]}),
        "offset_commit": {
            "group_id": GROUP,
            "generation_id_or_member_epoch": 1,
            "member_id": "unknown",
            "topics": [{"name": "t", "partitions": [partition]}],
        },
        "offset_fetch": offsets if version < 8 else {"groups": [offsets]},
        "list_offsets": {"replica_id": -1, "isolation_level": 0, "topics": []}
        | ({"timeout": SECONDS} if version >= 10 else {}),
        "offset_for_leader_epoch": {"replica_id": -1, "topics": []},
        "sasl_handshake": {"mechanism": "PLAIN"},
    }
    return requests[api]


@pytest.mark.parametrize("api", sorted(SUPPORTED_REQUESTS.keys() - {"sasl_authenticate"}))
async def test_every_version_is_answered(api: str, connection: Connection) -> None:
    """Each version that both support is answered in that version, and nothing breaks.

    SaslAuthenticate is left out: a PLAINTEXT broker ends the connection on it.
    """
    supported = SUPPORTED_REQUESTS[api]
    answered = set()
    for highest in range(supported.lowest, supported.highest + 1):
        try:
            version = connection.version(api, highest)
        except UnsupportedVersionError:
            continue  # Kafka has dropped this old version
        answer = await connection.request(
            api, partial(fields_of, api), timeout=30, max_version=version
        )
        assert answer.__version__ == version
        answered.add(version)
    assert max(answered) == supported.highest
    assert not connection.broken


async def test_an_error_of_the_coordinator_is_a_number(connection: Connection) -> None:
    """The response to a heartbeat of an unknown member is UNKNOWN_MEMBER_ID."""
    answer = await connection.request("heartbeat", fields_of("heartbeat", 4), timeout=30)
    assert int(answer.error_code) == 25
