"""The codec: values to bytes and back, and what is refused."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgroup.errors import ProtocolError
from kgroup.wire.codec import (
    UnknownRequestError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    milliseconds,
)
from kgroup.wire.entities import UnknownErrorCode
from kgroup.wire.versions import API_KEYS, SUPPORTED_REQUESTS
from tests.wire.entities import MESSAGE_TYPES, entities, known_versions

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}
COMMIT: dict[str, Any] = {
    "group_id": "g",
    "generation_id_or_member_epoch": 3,
    "member_id": "m",
    "topics": [
        {
            "name": "t",
            "partitions": [
                {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""},
            ],
        }
    ],
}
NO_TIME = {"throttle_time": timedelta(0)}


def encoded(api: str, version: int, fields: dict[str, Any]) -> bytes:
    """A request of this test."""
    return encode_request(api, version, fields, correlation_id=7, client_id="c")


def test_a_request_is_kafkas_bytes() -> None:
    """The bytes are those of Kafka's protocol guide, in the old form and in the flexible one."""
    head = b"\x00\x0c\x00\x03\x00\x00\x00\x07\x00\x01c"
    body = b"\x00\x01g\x00\x00\x00\x01\x00\x01m\xff\xff"
    assert encoded("heartbeat", 3, HEARTBEAT) == head + body
    head = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x01c\x00"
    assert encoded("heartbeat", 4, HEARTBEAT) == head + b"\x02g\x00\x00\x00\x01\x02m\x00\x00"


def test_a_request_comes_back_with_its_header() -> None:
    """What the client encodes the server decodes: API, version, ids and nested fields."""
    frame = decode_request(encoded("offset_commit", 9, COMMIT))
    assert (frame.api, frame.version, frame.correlation_id) == ("offset_commit", 9, 7)
    assert frame.client_id == "c"
    (topic,) = frame.entity.topics
    assert topic.partitions[0].committed_offset == 5
    assert topic.partitions[0].committed_leader_epoch == -1  # kio's default
    anonymous = encode_request("heartbeat", 4, HEARTBEAT, correlation_id=1, client_id=None)
    assert decode_request(anonymous).client_id is None


@pytest.mark.parametrize("members", [0, 20, 2000])
def test_messages_that_differ_in_their_number_only_keep_it(members: int) -> None:
    """Small and large messages are cached, but each has its own correlation id."""
    listed = [{"member_id": f"m{number}", "metadata": b"x"} for number in range(members)]
    fields = {
        "error_code": 0,
        "generation_id": 1,
        "protocol_name": "range",
        "leader": "m0",
        "member_id": "m0",
        "members": listed,
    }
    answers = [
        decode_response("join_group", 5, encode_response("join_group", 5, NO_TIME | fields, number))
        for number in (1, 2)
    ]
    assert [number for number, _ in answers] == [1, 2]
    assert answers[0][1] == answers[1][1]
    assert [member.member_id for member in answers[1][1].members] == [
        member["member_id"] for member in listed
    ]
    names = [f"g{number}" for number in range(members)]
    groups = {"groups": names, "include_authorized_operations": False}
    requests = [
        decode_request(
            b"before"
            + encode_request(
                "describe_groups", 5, groups, correlation_id=number, client_id=client_id
            ),
            6,
        )
        for number, client_id in ((1, "a"), (2, "a"), (3, None))
    ]
    assert [request.correlation_id for request in requests] == [1, 2, 3]
    assert [request.client_id for request in requests] == ["a", "a", None]
    assert all(request.entity.groups == tuple(names) for request in requests)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_field_that_a_version_lacks_is_dropped_if_it_has_no_value(version: int) -> None:
    """None, a field's default elsewhere and zero are left out of versions without the field."""
    nothing = {"group_instance_id": None, "retention_time": timedelta(milliseconds=-1)}
    commit = COMMIT | nothing
    commit["topics"] = [
        {
            "name": "t",
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 5,
                    "committed_metadata": None,
                    "committed_leader_epoch": -1,
                }
            ],
        }
    ]
    frame = decode_request(encoded("offset_commit", version, commit))
    assert frame.entity.topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize(
    ("api", "version", "fields", "text"),
    [
        (
            "heartbeat",
            2,
            HEARTBEAT | {"group_instance_id": "i"},
            "HeartbeatRequest v2 has no field group_instance_id, and its value would be lost",
        ),
        (
            "offset_fetch",
            6,
            {"group_id": "g", "topics": [], "require_stable": True},
            "OffsetFetchRequest v6 has no field require_stable",
        ),
        (
            "offset_fetch",
            8,
            {"groups": [], "require_stable": True, "topics": [{"name": "t"}]},
            "OffsetFetchRequest v8 has no field topics",
        ),
        ("heartbeat", 4, HEARTBEAT | {"typo": None}, "no version of .* has a field typo"),
        (
            "leave_group",
            5,
            {"group_id": "g", "members": [{"member_id": "m", "typo": None}]},
            "no version of MemberIdentity has a field typo",
        ),
        (
            "leave_group",
            5,
            {"group_id": "g", "members": [{"member_id": "m"}, {"member_id": 1}]},
            "members.member_id cannot hold this int",
        ),
        ("heartbeat", 4, {"group_id": "g"}, "HeartbeatRequest v4 needs generation_id, member_id"),
        (
            "heartbeat",
            4,
            HEARTBEAT | {"generation_id": 2**31},
            "cannot be encoded: generation_id cannot hold this int",
        ),
        ("heartbeat", 4, HEARTBEAT | {"member_id": None}, "member_id cannot hold this NoneType"),
        ("heartbeat", 3, HEARTBEAT | {"member_id": "x" * 2**15}, "bytes; 32767 is the maximum"),
        ("offset_commit", 9, COMMIT | {"topics": None}, "topics must be a sequence, got None"),
        ("offset_commit", 9, COMMIT | {"topics": "abc"}, "topics must be a sequence, got str"),
        ("offset_commit", 9, COMMIT | {"topics": ["abc"]}, "topics cannot hold this str"),
        (
            "offset_commit",
            9,
            COMMIT
            | {
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {
                                "partition_index": 0,
                                "committed_offset": "5",
                                "committed_metadata": None,
                            }
                        ],
                    }
                ]
            },
            "topics.partitions.committed_offset cannot hold this str",
        ),
    ],
)
def test_an_invalid_request_names_its_field(
    api: str, version: int, fields: dict[str, Any], text: str
) -> None:
    """A lost, unknown, missing or invalid field is a ValueError that names it."""
    with pytest.raises(ValueError, match=text):
        encoded(api, version, fields)


def test_errors_do_not_show_values() -> None:
    """A value that does not fit may be a secret, so the error names only its type."""
    with pytest.raises(ValueError, match="auth_bytes cannot hold this int") as caught:
        encoded("sasl_authenticate", 2, {"auth_bytes": 31337})
    assert "31337" not in str(caught.value)


def test_a_response_takes_error_codes_and_entities() -> None:
    """A server may pass an error code as a number, even an unknown one, or kio's own dataclass."""
    data = encode_response("heartbeat", 4, {"error_code": 999, **NO_TIME}, 5)
    correlation_id, entity = decode_response("heartbeat", 4, data)
    assert (correlation_id, int(entity.error_code)) == (5, 999)
    assert isinstance(entity.error_code, UnknownErrorCode)
    assert encode_response("heartbeat", 4, entity, 5) == data
    with pytest.raises(ValueError, match="error_code cannot hold this Unknown"):
        encode_response("heartbeat", 4, {"error_code": 2**15, **NO_TIME}, 5)


def test_the_header_of_an_api_versions_response_is_always_the_oldest() -> None:
    """A client that does not know the version must still find the correlation id (KIP-511)."""
    answer = {"error_code": 0, "api_keys": [], **NO_TIME}
    assert encode_response("api_versions", 4, answer, 5)[:6] == b"\0\0\0\x05\0\0"
    assert encode_response("heartbeat", 4, {"error_code": 0, **NO_TIME}, 5)[:5] == b"\0\0\0\x05\0"


@pytest.mark.parametrize(("key", "version"), [(12, 99), (999, 0), (12, -1), (18, 5)])
def test_an_unknown_request_has_what_the_response_needs(key: int, version: int) -> None:
    """For an API or version that is not known the error has key, version and correlation id."""
    with pytest.raises(UnknownRequestError) as caught:
        decode_request(struct.pack(">hhi", key, version, 7) + b"whatever")
    error = caught.value
    assert (error.api_key, error.version, error.correlation_id) == (key, version, 7)


def test_a_server_ignores_bytes_after_a_request() -> None:
    """Kafka's broker ignores them, and some clients send them."""
    assert decode_request(encoded("heartbeat", 4, HEARTBEAT) + b"x").entity.member_id == "m"


def test_an_unreadable_response_names_request_version_and_broker() -> None:
    """The ProtocolError names the broker and the request."""
    with pytest.raises(ProtocolError, match="the response of broker 1 to Heartbeat v4 cannot be"):
        decode_response("heartbeat", 4, b"abc", broker="broker 1")
    with pytest.raises(ProtocolError, match="to Heartbeat v4 has 1 bytes after its last field"):
        decode_response("heartbeat", 4, bytes(13), broker="broker 1")
    with pytest.raises(ProtocolError, match="a request of 3 bytes"):
        decode_request(b"abc")
    with pytest.raises(ProtocolError, match="a Heartbeat v4 request cannot be read"):
        decode_request(encoded("heartbeat", 4, HEARTBEAT)[:-3])


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=60),
    what=st.sampled_from(sorted(SUPPORTED_REQUESTS)),
)
def test_any_response_is_an_entity_or_a_protocol_error(data: bytes, what: str) -> None:
    """Any bytes are a response or a ProtocolError, in the oldest and the newest version."""
    for version in known_versions(what):
        try:
            decode_response(what, version, data)
        except ProtocolError:
            continue


@settings(max_examples=300, deadline=None)
@given(
    key=st.sampled_from([API_KEYS[api] for api in sorted(SUPPORTED_REQUESTS)])
    | st.integers(-1, 99),
    version=st.integers(-1, 15),
    data=st.binary(max_size=60),
)
def test_any_request_is_an_entity_or_one_of_two_errors(key: int, version: int, data: bytes) -> None:
    """Any bytes are a request, an unknown one, or a ProtocolError."""
    try:
        decode_request(struct.pack(">hhi", key, version, 1) + data)
    except (ProtocolError, UnknownRequestError):
        return


@settings(max_examples=200, deadline=None)
@given(entity=st.sampled_from(MESSAGE_TYPES).flatmap(entities), number=st.integers(0, 2**31 - 1))
def test_messages_come_back(entity: Any, number: int) -> None:
    """Every message of every version comes back as it went, with its correlation id."""
    api = next(name for name, key in API_KEYS.items() if key == entity.__api_key__)
    if type(entity).__name__.endswith("Response"):
        data = encode_response(api, entity.__version__, entity, number)
        assert decode_response(api, entity.__version__, data) == (number, entity)
        return
    fields = {name: getattr(entity, name) for name in type(entity).__slots__}
    data = encode_request(
        api, entity.__version__, fields, correlation_id=number, client_id="client"
    )
    frame = decode_request(data)
    assert (frame.correlation_id, frame.entity) == (number, entity)


@pytest.mark.parametrize("seconds", [0, 0.001, 1.5, 2147483.647])
def test_seconds_become_milliseconds(seconds: float) -> None:
    """A duration in seconds is a timedelta of whole milliseconds."""
    assert milliseconds(seconds, "session_timeout") == timedelta(milliseconds=round(seconds * 1000))


@pytest.mark.parametrize("seconds", [-0.001, 2147483.648, float("nan"), float("inf")])
def test_seconds_that_do_not_fit_are_refused(seconds: float) -> None:
    """A duration too long for int32 milliseconds is refused with its name."""
    with pytest.raises(ValueError, match="session_timeout is .* it must be 0 to 2147483.647"):
        milliseconds(seconds, "session_timeout")
