"""For each API the response with one error for the whole request, in every field for an error.

Used for an injected error, for a version that is not offered, and for a defect of the broker. The
group coordinator's own errors are in ``kgroup.broker.groups.error_responses``.

Source: ``getErrorResponse`` of Kafka's request classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kgroup.broker.response_versions import ResponseFields

_NO_TIME: Final = timedelta(0)
_NO_START: Final = datetime.fromtimestamp(0, UTC)

ErrorResponse = Callable[[Any, int], ResponseFields]
"""Builds a response from kio's request and the error code."""


def with_message(response: Any, message: str) -> Any:
    """A response with a text in every field for one."""
    if isinstance(response, Mapping):
        return {
            field: message if field == "error_message" else with_message(value, message)
            for field, value in response.items()
        }
    if isinstance(response, (list, tuple)):
        return [with_message(item, message) for item in response]
    return response


def _top(**fields: Any) -> ErrorResponse:
    def error_response(request: Any, code: int) -> ResponseFields:
        del request
        return {"error_code": code, **fields}

    return error_response


def _each(items: str, **names: Any) -> ErrorResponse:
    """One entry for each item of the request's list ``items``."""
    where = names.pop("where")

    def error_response(request: Any, code: int) -> ResponseFields:
        return {
            where: [
                {"error_code": code, **_values(item, names)} for item in getattr(request, items)
            ]
        }

    return error_response


def _values(item: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Fields for one item: a text that begins with a dot is an attribute of it, ``.`` the item."""
    values = {}
    for name, value in names.items():
        if isinstance(value, str) and value.startswith("."):
            values[name] = item if value == "." else getattr(item, value[1:], None)
        else:
            values[name] = value
    return values


def _identity(topic: Any) -> dict[str, Any]:
    """The fields that identify a request's topic in its version: its name, its id, or both."""
    names = ("name", "topic", "topic_id")
    return {name: getattr(topic, name) for name in names if hasattr(topic, name)}


def _partitions(topics: Iterable[Any], code: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            **_identity(topic),
            "partitions": [
                {"partition_index": part.partition_index, "error_code": code, **fields}
                for part in topic.partitions
            ],
        }
        for topic in topics
    ]


def _produce(request: Any, code: int) -> ResponseFields:
    return {
        "responses": [
            {
                **_identity(topic),
                "partition_responses": [
                    {
                        "index": part.index,
                        "error_code": code,
                        "base_offset": -1,
                        "record_errors": (),
                    }
                    for part in topic.partition_data
                ],
            }
            for topic in request.topic_data
        ]
    }


def _fetch(request: Any, code: int) -> ResponseFields:
    return {
        "error_code": code,
        "responses": [
            {
                **_identity(topic),
                "partitions": [
                    {
                        "partition_index": part.partition,
                        "error_code": code,
                        "high_watermark": -1,
                        "aborted_transactions": None,
                        "records": b"",
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _metadata(request: Any, code: int) -> ResponseFields:
    return {
        "brokers": (),
        "error_code": code,
        "topics": [
            {
                **_identity(topic),
                "error_code": code,
                "partitions": (),
            }
            for topic in request.topics or ()
        ],
    }


def _find_coordinator(request: Any, code: int) -> ResponseFields:
    nowhere = {"error_code": code, "error_message": None, "node_id": -1, "host": "", "port": -1}
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        return nowhere
    return {"coordinators": [{"key": key, **nowhere} for key in keys]}


def _offset_fetch(request: Any, code: int) -> ResponseFields:
    groups = getattr(request, "groups", None)
    if groups is not None:
        return {
            "groups": [
                {"group_id": group.group_id, "error_code": code, "topics": ()} for group in groups
            ]
        }
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": code,
                }
                for number in topic.partition_indexes
            ],
        }
        for topic in request.topics or ()
    ]
    return {"error_code": code, "topics": topics}


def _add_partitions(request: Any, code: int) -> ResponseFields:
    return {
        "error_code": code,
        "results_by_transaction": (),
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": code}
                    for number in topic.partitions
                ],
            }
            for topic in getattr(request, "v3_and_below_topics", ())
        ],
    }


def _delete_topics(request: Any, code: int) -> ResponseFields:
    named = [(topic.name, topic.topic_id) for topic in getattr(request, "topics", ())]
    named += [(name, None) for name in getattr(request, "topic_names", ())]
    return {
        "responses": [
            {"name": name, "topic_id": topic_id, "error_code": code} for name, topic_id in named
        ]
    }


def _leader_epochs(request: Any, code: int) -> ResponseFields:
    return {
        "topics": [
            {
                **_identity(topic),
                "partitions": [
                    {"partition": part.partition, "error_code": code} for part in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _elections(request: Any, code: int) -> ResponseFields:
    return {
        "error_code": code,
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": number, "error_code": code, "error_message": None}
                    for number in topic.partitions
                ],
            }
            for topic in request.topic_partitions or ()
        ],
    }


def _reassignments(request: Any, code: int) -> ResponseFields:
    return {
        "error_code": code,
        "error_message": None,
        "responses": _partitions(request.topics, code, error_message=None),
    }


def _described_producers(request: Any, code: int) -> ResponseFields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": code,
                        "error_message": None,
                        "active_producers": (),
                    }
                    for number in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _described_credentials(request: Any, code: int) -> ResponseFields:
    return {
        "error_code": code,
        "error_message": None,
        "results": [
            {"user": user.name, "error_code": code, "error_message": None, "credential_infos": ()}
            for user in request.users or ()
        ],
    }


_ALTERED: Final = _each(
    "resources",
    where="responses",
    resource_type=".resource_type",
    resource_name=".resource_name",
    error_message=None,
)


def _altered_credentials(request: Any, code: int) -> ResponseFields:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return {
        "results": [{"user": name, "error_code": code, "error_message": None} for name in names]
    }


#: kio's name of the API -> what builds its error response.
ERROR_RESPONSES: Final[Mapping[str, ErrorResponse]] = {
    "add_offsets_to_txn": _top(),
    "add_partitions_to_txn": _add_partitions,
    "alter_configs": _ALTERED,
    "alter_user_scram_credentials": _altered_credentials,
    "api_versions": _top(api_keys=()),
    "consumer_group_describe": _each(
        "group_ids",
        where="groups",
        group_id=".",
        group_state="",
        group_epoch=-1,
        assignment_epoch=-1,
        assignor_name="",
        members=(),
    ),
    "consumer_group_heartbeat": _top(member_epoch=0, heartbeat_interval=_NO_TIME, assignment=None),
    "create_acls": _each("creations", where="results", error_message=None),
    "create_partitions": _each("topics", where="results", name=".name"),
    "create_topics": _each(
        "topics", where="topics", name=".name", topic_id=None, error_message=None, configs=()
    ),
    "delete_acls": _each("filters", where="filter_results", error_message=None, matching_acls=()),
    "delete_groups": _each("groups_names", where="results", group_id="."),
    "delete_records": lambda request, code: {
        "topics": _partitions(request.topics, code, low_watermark=-1)
    },
    "delete_topics": _delete_topics,
    "describe_acls": _top(error_message=None, resources=()),
    "describe_client_quotas": _top(error_message=None, entries=None),
    "describe_cluster": _top(cluster_id="", brokers=()),
    "describe_configs": _each(
        "resources",
        where="results",
        resource_type=".resource_type",
        resource_name=".resource_name",
        error_message=None,
        configs=(),
    ),
    "describe_groups": _each(
        "groups",
        where="groups",
        group_id=".",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    ),
    "describe_log_dirs": lambda request, code: {
        "error_code": code,
        "results": [{"error_code": code, "log_dir": "", "topics": ()}],
    },
    "describe_producers": _described_producers,
    "describe_topic_partitions": lambda request, code: {
        "topics": [
            {"name": topic.name, "topic_id": None, "error_code": code, "partitions": ()}
            for topic in request.topics
        ],
        "next_cursor": None,
    },
    "describe_transactions": _each(
        "transactional_ids",
        where="transaction_states",
        transactional_id=".",
        transaction_state="",
        transaction_timeout=_NO_TIME,
        transaction_start_time=_NO_START,
        producer_id=-1,
        producer_epoch=-1,
        topics=(),
    ),
    "describe_user_scram_credentials": _described_credentials,
    "elect_leaders": _elections,
    "end_txn": _top(),
    "fetch": _fetch,
    "find_coordinator": _find_coordinator,
    "heartbeat": _top(),
    "incremental_alter_configs": _ALTERED,
    "init_producer_id": _top(producer_epoch=-1),
    "join_group": lambda request, code: {
        "error_code": code,
        "protocol_name": None,
        "leader": "",
        "member_id": request.member_id,
        "members": (),
    },
    "leave_group": _top(members=()),
    "list_config_resources": _top(config_resources=()),
    "list_groups": _top(groups=()),
    "list_offsets": lambda request, code: {"topics": _partitions(request.topics, code)},
    "alter_partition_reassignments": _reassignments,
    "list_partition_reassignments": _top(error_message=None, topics=()),
    "list_transactions": _top(transaction_states=()),
    "metadata": _metadata,
    "offset_commit": lambda request, code: {"topics": _partitions(request.topics, code)},
    "offset_delete": _top(topics=()),
    "offset_fetch": _offset_fetch,
    "offset_for_leader_epoch": _leader_epochs,
    "produce": _produce,
    "sasl_authenticate": _top(error_message=None, auth_bytes=b""),
    "sasl_handshake": _top(mechanisms=()),
    "sync_group": _top(assignment=b""),
    "txn_offset_commit": lambda request, code: {"topics": _partitions(request.topics, code)},
}

WITHOUT_RIGHT: Final[Mapping[str, ErrorResponse]] = {
    "describe_log_dirs": _top(results=()),
}
"""APIs that Kafka refuses for lack of a right in another form: without an entry for the error."""
PARTIAL_ERRORS: Final[Mapping[str, ErrorResponse]] = {
    "offset_delete": lambda request, code: {"topics": _partitions(request.topics, code)},
}
"""APIs whose error response does not name the items of the request -> an entry for each item."""
