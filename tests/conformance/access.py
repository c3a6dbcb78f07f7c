"""Access control at the level of requests, and what Apache Kafka answered to it.

Three things are recorded. The first is a table: what each request is answered if its user has one
right, and nothing else, or beside rights that the request needs in any case. The second is another
one: what each request is answered that names a second resource, which its user may not use. The
third are dialogues: rules are created, described and deleted, and a user tries what they allow.

    python -m tests.conformance.access

plays all of it on a real Kafka, which it starts, and writes ``access.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, final

import trio

from kgroup.broker.security.acl_filters import PatternType, PermissionType
from kgroup.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener
from tests.broker.record_batches import batch
from tests.conformance.golden import HERE
from tests.conformance.handshakes import plain
from tests.conformance.player import tcp
from tests.conformance.wire import Connection, Fields, NoAnswerError, Opener

GOLDEN: Final = HERE / "access.json"
USERS: Final = {"alice": "alice-secret", "root": "root-secret"}
TOPIC, GROUP, TRANSACTION = "t", "g", "x"
MISSING: Final = "missing"
CLOSED: Final = "closed"


def id_of(topic: str) -> str:
    """What stands here for the id that a topic turns out to have."""
    return f"id of {topic}"


ANOTHER: Final[Mapping[object, object]] = {
    TOPIC: CLOSED,
    id_of(TOPIC): id_of(CLOSED),
    GROUP: "h",
    TRANSACTION: "y",
}
"""What a request names -> another one of its kind, which alice may not use."""
WIDE: Final = "wide"
TOPICS: Final = {TOPIC: 1, CLOSED: 1, "u-closed": 1, WIDE: 3}
"""The topics that there are -> how many partitions they have."""
NAMES: Final = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
}
_ANY: Final = 1
_VISIBLE_WITHIN: Final = 10.0
_REFUSALS: Final = frozenset({29, 30, 31, 53})
"""The errors that mean that a right is missing."""
_GROUP_CONFIGS: Final = 32
_SECOND: Final = timedelta(seconds=1)
Right = tuple[ResourceType, Operation]
READS_GROUP: Final[Right] = (ResourceType.GROUP, Operation.READ)
WRITES_TRANSACTION: Final[Right] = (ResourceType.TRANSACTIONAL_ID, Operation.WRITE)
RIGHTS: Final[tuple[Right, ...]] = tuple((kind, one) for kind in NAMES for one in Operation)
FILTER: Final[Fields] = {
    "resource_type_filter": _ANY,
    "resource_name_filter": None,
    "pattern_type_filter": _ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": _ANY,
    "permission_type": _ANY,
}
NEW: Final[Fields] = {
    "resource_type": ResourceType.TOPIC.value,
    "resource_name": TOPIC,
    "resource_pattern_type": PatternType.LITERAL.value,
    "principal": "User:alice",
    "host": "*",
    "operation": Operation.READ.value,
    "permission_type": PermissionType.ALLOW.value,
}


VERIFIER: Final[Fields] = {
    "name": "bob",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": b"x" * 32,
}


def _topic(name: str = "name", **fields: Any) -> list[Fields]:
    return [{name: TOPIC, "partitions": [fields]}]


_JOIN: Final[Fields] = {
    "group_id": GROUP,
    "session_timeout": 10 * _SECOND,
    "rebalance_timeout": 10 * _SECOND,
    "member_id": "m",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
_COMMIT: Final[Fields] = {
    "group_id": GROUP,
    "member_id": "",
    "topics": _topic(partition_index=0, committed_offset=0, committed_metadata=""),
}
_IN_TRANSACTION: Final[Fields] = {
    "transactional_id": TRANSACTION,
    "producer_id": 1,
    "producer_epoch": 0,
}
_ADD_PARTITIONS: Final[Fields] = {
    "v3_and_below_transactional_id": TRANSACTION,
    "v3_and_below_producer_id": 1,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
}
_COMMIT_IN_TRANSACTION: Final[Fields] = {
    **_IN_TRANSACTION,
    "group_id": GROUP,
    "topics": _topic(partition_index=0, committed_offset=0, committed_metadata=""),
}
_MEMBER: Final[Fields] = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}

_OF_TRANSACTION: Final = batch(
    b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
)


def _produce(records: bytes) -> Fields:
    parts = [{"index": 0, "records": records}]
    topics = [{"name": TOPIC, "partition_data": parts}]
    return {"acks": 1, "timeout": _SECOND, "topic_data": topics}


def _configs(number: int, name: str, **fields: object) -> Fields:
    resource = {"resource_type": number, "resource_name": name, **fields}
    return {"resources": [resource]}


#: name of the request -> the rights that it has in any case, API, version, fields.
REQUESTS: Final[Mapping[str, tuple[tuple[Right, ...], str, int, Fields]]] = {
    "Metadata of a topic": ((), "metadata", 4, {"topics": [{"name": TOPIC}]}),
    "Metadata of all topics": ((), "metadata", 4, {"topics": None}),
    "Metadata of a missing topic": ((), "metadata", 4, {"topics": [{"name": MISSING}]}),
    "FindCoordinator of a group": ((), "find_coordinator", 1, {"key": GROUP, "key_type": 0}),
    "FindCoordinator of a transaction": (
        (),
        "find_coordinator",
        1,
        {"key": TRANSACTION, "key_type": 1},
    ),
    "FindCoordinator of several": (
        (),
        "find_coordinator",
        4,
        {"coordinator_keys": [GROUP], "key_type": 0},
    ),
    "ListOffsets": (
        (),
        "list_offsets",
        1,
        {"replica_id": -1, "topics": _topic(partition_index=0, timestamp=-1)},
    ),
    "OffsetForLeaderEpoch": (
        (),
        "offset_for_leader_epoch",
        2,
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
    ),
    "Fetch": (
        (),
        "fetch",
        4,
        {
            "replica_id": -1,
            "max_wait": 0 * _SECOND,
            "min_bytes": 0,
            "max_bytes": 1000,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
    ),
    "Metadata by id": (
        (),
        "metadata",
        12,
        {
            "topics": [{"topic_id": id_of(TOPIC), "name": None}],
            "include_topic_authorized_operations": False,
        },
    ),
    "Fetch by id": (
        (),
        "fetch",
        13,
        {
            "max_wait": 0 * _SECOND,
            "min_bytes": 0,
            "forgotten_topics_data": [],
            "topics": [
                {
                    "topic_id": id_of(TOPIC),
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
    ),
    "Produce": ((), "produce", 9, _produce(batch(b"x"))),
    "Produce with a transactional id": (
        (),
        "produce",
        9,
        {**_produce(batch(b"x")), "transactional_id": TRANSACTION},
    ),
    "Produce of a transaction": (
        (),
        "produce",
        9,
        {**_produce(_OF_TRANSACTION), "transactional_id": TRANSACTION},
    ),
    "Produce of a transaction by its writer": (
        (WRITES_TRANSACTION,),
        "produce",
        9,
        {**_produce(_OF_TRANSACTION), "transactional_id": TRANSACTION},
    ),
    "Produce of a transaction without its id": ((), "produce", 9, _produce(_OF_TRANSACTION)),
    "JoinGroup": ((), "join_group", 5, _JOIN),
    "SyncGroup": ((), "sync_group", 3, {**_MEMBER, "assignments": []}),
    "Heartbeat": ((), "heartbeat", 3, _MEMBER),
    "LeaveGroup": ((), "leave_group", 1, {"group_id": GROUP, "member_id": "m"}),
    "OffsetCommit": ((), "offset_commit", 2, _COMMIT),
    "OffsetCommit by a reader of the group": (
        (READS_GROUP,),
        "offset_commit",
        2,
        _COMMIT,
    ),
    "OffsetFetch": (
        (),
        "offset_fetch",
        1,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ),
    "OffsetFetch by a reader of the group": (
        (READS_GROUP,),
        "offset_fetch",
        1,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ),
    "OffsetFetch of several groups": (
        (READS_GROUP,),
        "offset_fetch",
        8,
        {
            "groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
            "require_stable": False,
        },
    ),
    "OffsetDelete": (
        (),
        "offset_delete",
        0,
        {"group_id": GROUP, "topics": _topic(partition_index=0)},
    ),
    "OffsetDelete by one who may delete the group": (
        ((ResourceType.GROUP, Operation.DELETE),),
        "offset_delete",
        0,
        {"group_id": GROUP, "topics": _topic(partition_index=0)},
    ),
    "DescribeGroups with operations": (
        (),
        "describe_groups",
        3,
        {"groups": [GROUP], "include_authorized_operations": True},
    ),
    "Metadata with operations": (
        (),
        "metadata",
        8,
        {
            "topics": [{"name": TOPIC}, {"name": MISSING}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
    ),
    "DescribeCluster with operations": (
        (),
        "describe_cluster",
        0,
        {"include_cluster_authorized_operations": True},
    ),
    "DescribeTopicPartitions": (
        (),
        "describe_topic_partitions",
        0,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None},
    ),
    "DescribeGroups": ((), "describe_groups", 1, {"groups": [GROUP]}),
    "ListGroups": ((), "list_groups", 1, {}),
    "DeleteGroups": ((), "delete_groups", 0, {"groups_names": [GROUP]}),
    "CreateTopics of an existing topic": (
        (),
        "create_topics",
        2,
        {
            "topics": [
                {
                    "name": TOPIC,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": _SECOND,
            "validate_only": False,
        },
    ),
    "DeleteTopics of a missing topic": (
        (),
        "delete_topics",
        1,
        {"topic_names": [MISSING], "timeout": _SECOND},
    ),
    "DeleteRecords": (
        (),
        "delete_records",
        0,
        {"topics": _topic(partition_index=0, offset=0), "timeout": _SECOND},
    ),
    "CreatePartitions": (
        (),
        "create_partitions",
        0,
        {
            "topics": [{"name": TOPIC, "count": 1, "assignments": None}],
            "timeout": _SECOND,
            "validate_only": False,
        },
    ),
    "InitProducerId": (
        (),
        "init_producer_id",
        0,
        {"transactional_id": None, "transaction_timeout": 10 * _SECOND},
    ),
    "InitProducerId of a transaction": (
        (),
        "init_producer_id",
        0,
        {"transactional_id": f"{TRANSACTION}-begun", "transaction_timeout": 10 * _SECOND},
    ),
    "AddPartitionsToTxn": ((), "add_partitions_to_txn", 0, _ADD_PARTITIONS),
    "AddPartitionsToTxn by its writer": (
        (WRITES_TRANSACTION,),
        "add_partitions_to_txn",
        0,
        _ADD_PARTITIONS,
    ),
    "AddOffsetsToTxn": ((), "add_offsets_to_txn", 0, {**_IN_TRANSACTION, "group_id": GROUP}),
    "AddOffsetsToTxn by its writer": (
        (WRITES_TRANSACTION,),
        "add_offsets_to_txn",
        0,
        {**_IN_TRANSACTION, "group_id": GROUP},
    ),
    "EndTxn": ((), "end_txn", 0, {**_IN_TRANSACTION, "committed": True}),
    "TxnOffsetCommit": ((), "txn_offset_commit", 0, _COMMIT_IN_TRANSACTION),
    "TxnOffsetCommit by its writer who reads the group": (
        (WRITES_TRANSACTION, READS_GROUP),
        "txn_offset_commit",
        0,
        _COMMIT_IN_TRANSACTION,
    ),
    "DescribeProducers": (
        (),
        "describe_producers",
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ),
    "DescribeTransactions": (
        (),
        "describe_transactions",
        0,
        {"transactional_ids": [TRANSACTION]},
    ),
    "ListTransactions": (
        (),
        "list_transactions",
        0,
        {"state_filters": [], "producer_id_filters": []},
    ),
    "DescribeAcls": ((), "describe_acls", 1, FILTER),
    "CreateAcls": ((), "create_acls", 1, {"creations": [{**NEW, "resource_name": ""}]}),
    "DeleteAcls": (
        (),
        "delete_acls",
        1,
        {"filters": [{**FILTER, "principal_filter": "User:nobody"}]},
    ),
    "DescribeConfigs of a topic": (
        (),
        "describe_configs",
        1,
        {
            "resources": [
                {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": ["x"]}
            ],
            "include_synonyms": False,
        },
    ),
    "DescribeConfigs of a broker": (
        (),
        "describe_configs",
        1,
        {
            "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": ["x"]}],
            "include_synonyms": False,
        },
    ),
    "DescribeConfigs of a group": (
        (),
        "describe_configs",
        1,
        {**_configs(_GROUP_CONFIGS, GROUP, configuration_keys=["x"]), "include_synonyms": False},
    ),
    "IncrementalAlterConfigs of a group": (
        (),
        "incremental_alter_configs",
        0,
        {**_configs(_GROUP_CONFIGS, GROUP, configs=[]), "validate_only": True},
    ),
    "AlterConfigs of a group": (
        (),
        "alter_configs",
        0,
        {**_configs(_GROUP_CONFIGS, GROUP, configs=[]), "validate_only": True},
    ),
    "ListConfigResources": ((), "list_config_resources", 0, {}),
    "IncrementalAlterConfigs of a topic": (
        (),
        "incremental_alter_configs",
        0,
        {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": []}],
            "validate_only": True,
        },
    ),
    "AlterConfigs of a topic": (
        (),
        "alter_configs",
        0,
        {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": []}],
            "validate_only": True,
        },
    ),
    "DescribeLogDirs": ((), "describe_log_dirs", 1, {"topics": None}),
    "DescribeCluster": (
        (),
        "describe_cluster",
        0,
        {"include_cluster_authorized_operations": False},
    ),
    "AlterPartitionReassignments": (
        (),
        "alter_partition_reassignments",
        0,
        {
            "timeout": _SECOND,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
    ),
    "ListPartitionReassignments": (
        (),
        "list_partition_reassignments",
        0,
        {"timeout": _SECOND, "topics": None},
    ),
    "ElectLeaders": (
        (),
        "elect_leaders",
        1,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout": _SECOND,
        },
    ),
    "DescribeClientQuotas": (
        (),
        "describe_client_quotas",
        0,
        {"components": [], "strict": False},
    ),
    # Kafka 4.3 never answers one about all users that lacks the right: its error response fails.
    "DescribeUserScramCredentials": (
        (),
        "describe_user_scram_credentials",
        0,
        {"users": [{"name": "alice"}]},
    ),
    "AlterUserScramCredentials": (
        (),
        "alter_user_scram_credentials",
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
}


def _own_codes(part: Fields) -> list[int]:
    return [int(value) for field, value in part.items() if field.endswith("error_code")]


def _mappings(answer: Any) -> Iterator[Fields]:
    """An answer and all parts of it, at any depth."""
    if isinstance(answer, Mapping):
        yield answer
        answer = tuple(answer.values())
    if isinstance(answer, list | tuple):
        for item in answer:
            yield from _mappings(item)


def codes(answer: Any) -> list[int]:
    """The error codes of an answer, at any depth, without duplicates."""
    return sorted({code for part in _mappings(answer) for code in _own_codes(part)})


def refusals(answer: Any) -> list[str]:
    """What an answer says of the rights that are missing, at any depth, without duplicates.

    Kafka shows all of the request in one of these texts; that is left out.
    """
    texts = {
        part["error_message"]
        for part in _mappings(answer)
        if part.get("error_message") and not _REFUSALS.isdisjoint(_own_codes(part))
    }
    return sorted(re.sub(r"^Request .* needs ", "Request ... needs ", text) for text in texts)


_NAMED_BY: Final = ("name", "topic", "group_id", "transactional_id", "resource_name", "key", "user")


def parts(answer: Any, path: str = "") -> Iterator[str]:
    """The error codes in an answer, each with the name of what it is about."""
    if isinstance(answer, list | tuple):
        for item in answer:
            yield from parts(item, path)
    elif isinstance(answer, Mapping):
        named = [str(answer[field]) for field in _NAMED_BY if answer.get(field)]
        if not named and answer.get("topic_id"):
            named = [str(answer["topic_id"])]
        path = "/".join((path, *named) if path else named)
        yield from (f"{path} {code}".strip() for code in _own_codes(answer))
        yield from parts(tuple(answer.values()), path)


def replaced(value: Any, others: Mapping[object, object]) -> Any:
    """A message in which names and ids are replaced, at any depth."""
    if isinstance(value, Mapping):
        return {field: replaced(one, others) for field, one in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(one, others) for one in value]
    return others.get(value, value)


def with_second(fields: Any) -> Any:
    """A request that names in each list, beside what alice may use, something else."""
    if isinstance(fields, Mapping):
        return {field: with_second(one) for field, one in fields.items()}
    if not isinstance(fields, list):
        return fields
    both = [one for item in fields for one in (item, replaced(item, ANOTHER))]
    return [with_second(one) for at, one in enumerate(both) if one not in both[:at]]


def operations(answer: Any) -> list[str]:
    """What an answer says the user may do with each resource, as Kafka's numbers of operations."""
    if isinstance(answer, list | tuple):
        return [may for item in answer for may in operations(item)]
    if not isinstance(answer, Mapping):
        return []
    own = [
        "+".join(str(bit) for bit in range(31) if value >> bit & 1) or "nothing"
        for field, value in answer.items()
        if field.endswith("authorized_operations") and value >= 0
    ]
    return [*own, *(may for value in answer.values() for may in operations(value))]


@final
class Access:
    """A broker with rules of access: a superuser's connection, and alice's.

    Args:
        admin: the superuser's.
        alice: the user's whose rights are changed.
    """

    def __init__(self, admin: Connection, alice: Connection) -> None:
        self._admin = admin
        self._alice = alice
        self._ids: dict[object, object] = {}
        self.lines: list[str] = []
        self.changes = 0

    async def prepare(self) -> None:
        """Create the topics, and wait for coordinators and for numbers of producers."""
        await self.create_topics(TOPICS)
        with trio.fail_after(_VISIBLE_WITHIN):
            for name in (
                "FindCoordinator of a group",
                "FindCoordinator of a transaction",
                "InitProducerId",
            ):
                while codes(await self._admin.request(*REQUESTS[name][1:], "access")) != [0]:  # noqa: ASYNC110 # a broker can only be asked
                    await trio.sleep(0.1)

    async def set_rights(self, rights: Iterable[Right]) -> None:
        """Let alice have these rights and no other, and wait until the broker knows."""
        await self.delete_all()
        await self.create([right_of(*right) for right in rights])

    async def create(self, rules: Sequence[Fields]) -> Fields:
        """Create rules, and wait until the broker knows those that are accepted."""
        answer = await self._admin.request("create_acls", 3, {"creations": rules}, "access")
        accepted = {
            in_words(rule, rule["resource_pattern_type"], rule)
            for rule, result in zip(rules, answer["results"], strict=True)
            if result["error_code"] == 0
        }
        await self._wait(lambda found: accepted <= {*found})
        return answer

    async def delete_all(self) -> None:
        """Remove all rules, and wait until the broker knows."""
        await self._admin.request("delete_acls", 3, {"filters": [FILTER]}, "access")
        await self._wait(lambda found: not found)

    async def describe(self, **wanted: object) -> list[str]:
        """The rules that a filter means, in words."""
        answer = await self._admin.request("describe_acls", 3, {**FILTER, **wanted}, "access")
        return shown(answer)

    async def delete(self, filters: Sequence[Fields]) -> Fields:
        """Delete rules."""
        return await self._admin.request("delete_acls", 3, {"filters": filters}, "access")

    async def alter_credentials(self, deletions: Fields, upsertions: Sequence[Fields]) -> Fields:
        """Change what proves the passwords of SCRAM.

        Args:
            deletions: numbers of mechanisms by name of a user.
            upsertions: new verifiers.
        """
        fields = {
            "deletions": [{"name": name, "mechanism": one} for name, one in deletions.items()],
            "upsertions": [{**VERIFIER, **one} for one in upsertions],
        }
        return await self._admin.request("alter_user_scram_credentials", 0, fields, "access")

    async def describe_credentials(self, users: Sequence[str] | None) -> Fields:
        """What proves the passwords of SCRAM, without secrets."""
        fields = {"users": None if users is None else [{"name": name} for name in users]}
        return await self._admin.request("describe_user_scram_credentials", 0, fields, "access")

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics with so many partitions, and wait until they have leaders."""
        created = [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name, partitions in topics.items()
        ]
        await self._admin.request("create_topics", 7, {"topics": created}, "access")
        named = {
            "topics": [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        with trio.fail_after(_VISIBLE_WITHIN):
            answer = await self._admin.request("metadata", 12, named, "access")
            while codes(answer) != [0]:
                await trio.sleep(0.05)
                answer = await self._admin.request("metadata", 12, named, "access")
        self._ids |= {id_of(topic["name"]): topic["topic_id"] for topic in answer["topics"]}

    async def request(self, api: str, version: int, fields: Fields) -> Fields:
        """What alice is answered."""
        with trio.fail_after(_VISIBLE_WITHIN):
            given = replaced(fields, self._ids)
            answer = await self._alice.request(api, version, given, "access")
        placeholders = {topic_id: name for name, topic_id in self._ids.items()}
        shown_answer: Fields = replaced(answer, placeholders)
        return shown_answer

    async def attempt(self, name: str) -> str:
        """What alice is answered to one of the requests, as error codes."""
        answer = await self.request(*REQUESTS[name][1:])
        found = " ".join(map(str, codes(answer))) or "no error"
        if may := operations(answer):
            found += f", may {' '.join(may)}"
        if texts := refusals(answer):
            found += f", says {'; '.join(texts)}"
        return f"{found}, empty" if _is_empty(answer) else found

    async def attempt_second(self, name: str) -> str:
        """What alice is answered to one of the requests that names something else, too."""
        _, api, version, fields = REQUESTS[name]
        return "; ".join(sorted({*parts(await self.request(api, version, with_second(fields)))}))

    async def _wait(self, done: Callable[[list[str]], bool]) -> None:
        with trio.fail_after(_VISIBLE_WITHIN):
            while not done(await self.describe()):  # noqa: ASYNC110 # as above
                await trio.sleep(0.005)


def right_of(kind: ResourceType, operation: Operation) -> Fields:
    """A rule that gives alice a right."""
    resource = {"resource_type": kind.value, "resource_name": NAMES[kind]}
    # One of the requests creates a transaction. kio cannot read a description of one that is empty.
    if kind is ResourceType.TRANSACTIONAL_ID:
        resource["resource_pattern_type"] = PatternType.PREFIXED.value
    return {**NEW, **resource, "operation": operation.value}


def shown(answer: Fields) -> list[str]:
    """The rules in an answer, in words and in order."""
    return sorted(
        in_words(resource, resource["pattern_type"], rule)
        for resource in answer["resources"]
        for rule in resource["acls"]
    )


def in_words(resource: Fields, pattern_type: int, rule: Fields) -> str:
    """A rule for a resource; what is created names both in one."""
    return " ".join(
        (
            rule["principal"],
            rule["host"],
            PermissionType(rule["permission_type"]).name,
            Operation(rule["operation"]).name,
            ResourceType(resource["resource_type"]).name,
            PatternType(pattern_type).name,
            resource["resource_name"],
        )
    )


REQUESTS_OF_SEVERAL: Final = [
    name for name, (_, _, _, fields) in REQUESTS.items() if with_second(fields) != fields
]


async def play_second(access: Access) -> dict[str, str]:
    """What each request is answered that names a second resource, which alice may not use."""
    everything = [(kind, Operation.ALL) for kind in NAMES if kind is not ResourceType.CLUSTER]
    await access.set_rights(everything)
    return {name: await access.attempt_second(name) for name in REQUESTS_OF_SEVERAL}


def _is_empty(answer: Fields) -> bool:
    """Whether an answer has lists, and nothing is in any of them, but brokers."""
    lists = [
        value for field, value in answer.items() if isinstance(value, list) and field != "brokers"
    ]
    return bool(lists) and not any(lists)


async def play_table(access: Access) -> dict[str, dict[str, str]]:
    """What each request is answered without a right, and with each one that changes that."""
    played: dict[str, dict[str, str]] = {}
    for given in dict.fromkeys(one[0] for one in REQUESTS.values()):
        names = [name for name, one in REQUESTS.items() if one[0] == given]
        await access.set_rights(given)
        without = {name: await access.attempt(name) for name in names}
        played |= {name: {"nothing": answer} for name, answer in without.items()}
        for right in RIGHTS:
            if given and right[0] is not ResourceType.TOPIC and right != READS_GROUP:
                continue
            await access.set_rights(dict.fromkeys((*given, right)))
            for name in names:
                answer = await access.attempt(name)
                if answer != without[name]:
                    played[name][f"{right[1].name} {right[0].name}"] = answer
    return played


Play = Callable[[Access], Awaitable[None]]
DIALOGUES: Final[dict[str, Play]] = {}


def dialogue(play: Play) -> Play:
    """Register a dialogue; its docstring says what must hold."""
    DIALOGUES[play.__name__] = play
    return play


async def play_dialogues(access: Access) -> dict[str, list[str]]:
    """Play all dialogues, one after the other."""
    played = {}
    for name, play in DIALOGUES.items():
        await access.delete_all()
        access.lines = []
        await play(access)
        played[name] = access.lines
    return played


async def say_created(a: Access, words: str, *rules: Fields) -> None:
    """Create rules, and note what each is answered."""
    try:
        answer = await a.create([{**NEW, **rule} for rule in rules])
    except NoAnswerError:
        a.lines.append(f"create {words} -> closed")
        return
    results = [_result(one) for one in answer["results"]]
    a.lines.append(f"create {words} -> {'; '.join(results)}")


async def say_described(a: Access, words: str, **wanted: object) -> None:
    """Note the rules that a filter means."""
    a.lines.append(f"describe {words} -> {'; '.join(await a.describe(**wanted)) or 'none'}")


async def say_deleted(a: Access, words: str, *filters: Fields) -> None:
    """Delete rules, and note how many each filter meant."""
    answer = await a.delete([{**FILTER, **one} for one in filters])
    results = [f"{_result(one)} {len(one['matching_acls'])}" for one in answer["filter_results"]]
    a.lines.append(f"delete {words} -> {'; '.join(results)}")


async def say_attempted(a: Access, name: str) -> None:
    """Note what alice is answered."""
    a.lines.append(f"{name} -> {await a.attempt(name)}")


def _result(one: Fields) -> str:
    return f"{int(one['error_code'])} {one['error_message'] or ''}".strip()


@dialogue
async def rules_that_are_wrong(a: Access) -> None:
    """Each is refused for itself, and the others are created."""
    await say_created(
        a,
        "one for a cluster of another name, one that is right",
        {"resource_type": ResourceType.CLUSTER.value, "resource_name": "mine"},
        {},
    )
    await say_created(a, "one without a name", {"resource_name": ""})
    await say_created(a, "for any type", {"resource_type": 1})
    await say_created(a, "for an unknown type", {"resource_type": 99})
    await say_created(a, "for any pattern", {"resource_pattern_type": 1})
    await say_created(a, "for matching patterns", {"resource_pattern_type": 2})
    await say_created(a, "for an unknown pattern", {"resource_pattern_type": 99})
    await say_created(a, "for any operation", {"operation": 1})
    await say_created(a, "for an unknown operation", {"operation": 99})
    await say_created(a, "with any permission", {"permission_type": 1})
    await say_created(a, "with an unknown permission", {"permission_type": 99})
    await say_described(a, "all")


@dialogue
async def principals_and_hosts(a: Access) -> None:
    """Principals of any type are kept, and hosts are not checked."""
    await say_created(a, "for a group", {"principal": "Group:one"})
    await say_created(a, "without a type", {"principal": "alice"})
    await say_created(a, "without a principal", {"principal": ""})
    await say_created(a, "without a user", {"principal": "User:"})
    await say_created(a, "with an empty type", {"principal": ":alice"})
    await say_created(a, "with two colons", {"principal": "User:a:b"})
    await say_created(a, "without a host", {"host": ""})
    await say_created(a, "with a name as host", {"host": "no address"})
    await say_described(a, "all")


@dialogue
async def the_same_rule_twice(a: Access) -> None:
    """It is one rule."""
    await say_created(a, "one twice", {}, {})
    await say_created(a, "the same again", {})
    await say_described(a, "all")


PATTERNS: Final[tuple[Fields, ...]] = (
    {"resource_name": "orders"},
    {"resource_name": "*"},
    {"resource_name": "orders-eu"},
    {"resource_name": "ord", "resource_pattern_type": PatternType.PREFIXED.value},
    {"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED.value},
    {"resource_name": "orders", "resource_type": ResourceType.GROUP.value},
)


@dialogue
async def filters_by_pattern(a: Access) -> None:
    """A name is that of a rule; with MATCH it is that of a resource."""
    await say_created(a, "several", *PATTERNS)
    for pattern in PatternType:
        kind = {"pattern_type_filter": pattern.value}
        await say_described(a, pattern.name, **kind)
        for name in ("orders", "ord", "*", "other"):
            await say_described(a, f"{pattern.name} {name}", resource_name_filter=name, **kind)
    await say_described(a, "an unknown pattern", pattern_type_filter=99)


@dialogue
async def filters_by_the_rest(a: Access) -> None:
    """Every field that is given must be equal."""
    deny = {"permission_type": PermissionType.DENY.value}
    await say_created(
        a,
        "several",
        {},
        deny,
        {"operation": Operation.ALL.value},
        {"principal": "User:*"},
        {"host": "10.0.0.1"},
        {"resource_type": ResourceType.USER.value},
        {"operation": Operation.DESCRIBE_TOKENS.value},
        {"operation": Operation.TWO_PHASE_COMMIT.value},
    )
    for field, values in {
        "principal_filter": ("User:alice", "User:*", "alice"),
        "host_filter": ("*", "10.0.0.1"),
        "operation": (2, 3, 14, 15, 99),
        "permission_type": (2, 3, 99),
        "resource_type_filter": (2, 3, 7, 99),
    }.items():
        for value in values:
            await say_described(a, f"{field} {value}", **{field: value})


@dialogue
async def deleting(a: Access) -> None:
    """A rule that two filters mean is in both results; what a filter does not mean remains."""
    await say_created(a, "several", *PATTERNS)
    orders = {"resource_name_filter": "orders"}
    await say_deleted(a, "orders twice", orders, orders)
    await say_deleted(a, "orders again", orders)
    await say_deleted(a, "by an unknown type", {"resource_type_filter": 99})
    await say_deleted(a, "by an unknown pattern", {"pattern_type_filter": 99})
    await say_deleted(a, "by an unknown operation", {"operation": 99})
    await say_deleted(a, "by an unknown permission", {"permission_type": 99})
    await say_deleted(a, "by no filter")


async def _say_rights(a: Access, words: str, *rules: Fields) -> None:
    await a.delete_all()
    await say_created(a, words, *rules)
    for name in ("Fetch", "ListOffsets", "DeleteRecords"):
        await say_attempted(a, name)


@dialogue
async def what_rules_allow(a: Access) -> None:
    """A denial counts more than any permission, and forbids only what it names."""
    deny = {"permission_type": PermissionType.DENY.value}
    everything = {"operation": Operation.ALL.value}
    prefix = {"resource_pattern_type": PatternType.PREFIXED.value}
    describe, delete = ({"operation": one.value} for one in (Operation.DESCRIBE, Operation.DELETE))
    await _say_rights(a, "everything", everything)
    await _say_rights(a, "everything but to read", everything, deny)
    await _say_rights(a, "everything but to describe", everything, {**deny, **describe})
    await _say_rights(a, "everything but everything", everything, {**deny, **everything})
    await _say_rights(a, "to read and to delete", {}, delete)
    await _say_rights(a, "to read any topic", {"resource_name": "*"})
    await _say_rights(a, "to read, by the whole name as prefix", prefix)
    await _say_rights(a, "to read, by a prefix that is a star", {**prefix, "resource_name": "*"})
    await _say_rights(a, "to read, but no topic", {}, {**deny, "resource_name": "*"})
    await _say_rights(a, "everybody to read", {"principal": "User:*"})
    await _say_rights(a, "everybody of another type to read", {"principal": "Group:*"})
    await _say_rights(a, "to read from here", {"host": "127.0.0.1"})
    await _say_rights(a, "to read from elsewhere", {"host": "10.0.0.1"})
    await _say_rights(a, "to read, but not from here", {}, {**deny, "host": "127.0.0.1"})


async def _say_parts(a: Access, words: str, api: str, version: int, **fields: object) -> Fields:
    """Note what alice is answered to a request of a dialogue, by what it names."""
    answer = await a.request(api, version, fields)
    a.lines.append(f"{words} -> {'; '.join(sorted(parts(answer))) or 'nothing'}")
    return answer


def _on(name: str, operation: Operation, **more: object) -> Fields:
    return {"resource_name": name, "operation": operation.value, **more}


_ON_CLUSTER: Final = {"resource_type": ResourceType.CLUSTER.value}


@dialogue
async def topics_that_metadata_creates(a: Access) -> None:
    """The right to describe the topic comes first, then the one to create it or any."""
    for words, *rules in (
        ("create", _on("new", Operation.CREATE)),
        ("describe", _on("new", Operation.DESCRIBE)),
        ("describe, and create another", _on("new", Operation.READ), _on("n", Operation.CREATE)),
        ("describe and create", _on("new", Operation.DESCRIBE), _on("new", Operation.CREATE)),
        (
            "describe, and create any",
            _on("newer", Operation.DESCRIBE),
            _on(CLUSTER_NAME, Operation.CREATE, **_ON_CLUSTER),
        ),
    ):
        await a.delete_all()
        await say_created(a, f"rules to {words}", *rules)
        topics = [{"name": "new"}, {"name": "newer"}]
        answer = await a.request("metadata", 4, {"topics": topics})
        with trio.fail_after(_VISIBLE_WITHIN):
            # Kafka answers before the topic that it creates is there.
            while not {*codes(answer)} <= {0, 29}:
                await trio.sleep(0.05)
                answer = await a.request("metadata", 4, {"topics": topics})
        a.lines.append(f"Metadata -> {'; '.join(sorted(parts(answer)))}")


async def _say_deleted_topic(a: Access, words: str, *rules: Fields) -> None:
    await a.delete_all()
    await say_created(a, words, *rules)
    topics = [{"name": None, "topic_id": id_of("doomed")}]
    answer = await a.request("delete_topics", 6, {"topics": topics, "timeout": _SECOND})
    names = [one["name"] for one in answer["responses"]]
    a.lines.append(f"DeleteTopics by id -> {'; '.join(parts(answer))}, named {names}")


@dialogue
async def topics_deleted_by_id(a: Access) -> None:
    """A user who may not describe a topic does not get its name."""
    await a.create_topics({"doomed": 1})
    await _say_deleted_topic(a, "no rule")
    await _say_deleted_topic(a, "one to describe", _on("doomed", Operation.DESCRIBE))
    await _say_deleted_topic(a, "one to write", _on("doomed", Operation.WRITE))
    await _say_deleted_topic(a, "one to delete", _on("doomed", Operation.DELETE))


async def _say_pages(a: Access, words: str, names: Sequence[str], limit: int) -> None:
    """Note each page of DescribeTopicPartitions, from the first to the last."""
    cursor: Fields | None = None
    pages: list[str] = []
    while not pages or cursor is not None:
        fields = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        answer = await a.request("describe_topic_partitions", 0, fields)
        cursor = answer["next_cursor"]
        shown_topics = [
            f"{topic['name']} {int(topic['error_code'])}"
            f" {[part['partition_index'] for part in topic['partitions']]}"
            for topic in answer["topics"]
        ]
        pages.append(" ".join(sorted(shown_topics)) or "nothing")
    a.lines.append(f"{words}, at most {limit} -> {' | '.join(pages)}")


@dialogue
async def pages_of_partitions(a: Access) -> None:
    """Topics that the user may not describe count nothing, and no page begins with one."""
    named = [*TOPICS, MISSING]
    for words, *rules in (
        ("no rule",),
        ("two topics", _on(TOPIC, Operation.DESCRIBE), _on(WIDE, Operation.DESCRIBE)),
        ("the missing one", _on(MISSING, Operation.DESCRIBE), _on(WIDE, Operation.DESCRIBE)),
    ):
        await a.delete_all()
        await say_created(a, words, *rules)
        for limit in (1, 2, 4, 10):
            await _say_pages(a, "all", [], limit)
            await _say_pages(a, "named", named, limit)
        await _say_pages(a, "closed ones", [CLOSED, "u-closed"], 1)


@dialogue
async def configs_of_created_topics(a: Access) -> None:
    """They need a right of their own."""
    for words, *rules in (
        ("create", _on("new-1", Operation.CREATE)),
        ("create any", _on(CLUSTER_NAME, Operation.CREATE, **_ON_CLUSTER)),
        (
            "create and describe configs",
            _on("new-1", Operation.CREATE),
            _on("new-1", Operation.DESCRIBE_CONFIGS),
        ),
    ):
        await a.delete_all()
        await say_created(a, f"rules to {words}", *rules)
        for name in ("new-1", TOPIC):
            topic = {
                "name": name,
                "num_partitions": 2,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            fields = {"topics": [topic], "validate_only": True}
            (result,) = (await a.request("create_topics", 7, fields))["topics"]
            a.lines.append(
                f"CreateTopics {name} -> {' '.join(map(str, codes(result)))},"
                f" {result['num_partitions']} partitions, {result['replication_factor']} replicas,"
                f" {'configs' if result['configs'] else 'no configs'}"
            )


@dialogue
async def topics_of_a_transaction(a: Access) -> None:
    """Those that the user may not describe are left out."""
    transaction = {"resource_type": ResourceType.TRANSACTIONAL_ID.value}
    writes = _on("ongoing", Operation.WRITE, **transaction)
    await say_created(
        a, "rules to write", writes, *(_on(name, Operation.WRITE) for name in (TOPIC, CLOSED))
    )
    began = await a.request(
        "init_producer_id",
        0,
        {"transactional_id": "ongoing", "transaction_timeout": 60 * _SECOND},
    )
    producer = {
        "producer_id": began["producer_id"],
        "producer_epoch": began["producer_epoch"],
    }
    await _say_parts(
        a,
        "AddPartitionsToTxn",
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id="ongoing",
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in (TOPIC, CLOSED)],
        **{f"v3_and_below_{field}": value for field, value in producer.items()},
    )
    for words, *rules in (
        ("of the transaction", writes),
        ("of a topic, too", writes, _on(TOPIC, Operation.DESCRIBE)),
    ):
        await a.delete_all()
        await say_created(a, f"rules {words}", *rules)
        fields = {"transactional_ids": ["ongoing"]}
        answer = await a.request("describe_transactions", 0, fields)
        topics = sorted(topic["topic"] for topic in answer["transaction_states"][0]["topics"])
        a.lines.append(f"DescribeTransactions -> {'; '.join(parts(answer))}, topics {topics}")
    await _say_parts(
        a, "EndTxn", "end_txn", 1, transactional_id="ongoing", committed=False, **producer
    )


async def _say_altered(
    a: Access, words: str, deletions: Fields | None = None, *upsertions: Fields
) -> None:
    answer = await a.alter_credentials(deletions or {}, upsertions)
    results = sorted(f"{one['user']!r} {_result(one)}" for one in answer["results"])
    a.lines.append(f"alter {words} -> {'; '.join(results)}")


async def _say_credentials(a: Access, *users: str) -> None:
    """Wait until the change before is visible, and note the credentials of users."""
    # A broker learns of changes in their order, and of a credential nothing else says that it did.
    a.changes += 1
    await a.create([{**NEW, "resource_name": f"change-{a.changes}"}])
    answer = await a.describe_credentials(users or None)
    results = sorted(
        f"{one['user']} {_result(one)}"
        f" {sorted((info['mechanism'], info['iterations']) for info in one['credential_infos'])}"
        for one in answer["results"]
    )
    a.lines.append(f"describe {' '.join(users) or 'all'} -> {'; '.join(results)}")


@dialogue
async def credentials_of_scram(a: Access) -> None:
    """Each change is refused or made for itself, and a user is changed once in a request."""
    await _say_altered(a, "a new user", {}, {})
    await _say_credentials(a, "bob")
    await _say_altered(a, "the same user", {}, {"mechanism": 2, "iterations": 16384})
    await _say_credentials(a, "bob", "alice", "nobody")
    await _say_credentials(a, "bob", "bob")
    await _say_credentials(a)
    await _say_altered(a, "without a name", {}, {"name": ""})
    await _say_altered(a, "by no mechanism", {"bob": 0}, {"name": "eve", "mechanism": 3})
    await _say_altered(a, "with few iterations", {}, {"iterations": 4095})
    await _say_altered(a, "with many iterations", {}, {"iterations": 16385})
    await _say_altered(a, "twice", {}, {}, {"mechanism": 2})
    await _say_altered(a, "and delete", {"bob": 1}, {"mechanism": 2})
    await _say_altered(a, "twice, first wrong", {}, {"iterations": 1}, {})
    await _say_altered(a, "twice, then wrong", {}, {}, {"iterations": 1})
    await _say_altered(a, "with an empty salt", {}, {"name": "eve", "salt": b""})
    await _say_altered(a, "with an empty key", {}, {"name": "eve", "salted_password": b""})
    await _say_credentials(a, "bob", "eve")
    await _say_altered(a, "by deleting", {"bob": 1, "eve": 2, "nobody": 1, "": 1})
    await _say_credentials(a, "bob", "eve")
    await _say_altered(a, "by deleting the rest", {"bob": 2, "eve": 1})
    await _say_credentials(a, "bob", "eve")


@asynccontextmanager
async def connected(admin: Opener, users: Opener, superuser: str = "") -> AsyncIterator[Access]:
    """A connection of the superuser and one of alice.

    Args:
        admin: connects to where the superuser does.
        users: connects to where alice logs in.
        superuser: the user to log in as there; empty if the listener has no logins.
    """
    both = []
    for opener, user in ((admin, superuser), (users, "alice")):
        connection = await Connection.open(opener)
        if user:
            await connection.request("sasl_handshake", 1, {"mechanism": "PLAIN"}, "access")
            login = {"auth_bytes": plain(user, USERS[user])}
            await connection.request("sasl_authenticate", 2, login, "access")
        both.append(connection)
    access = Access(*both)
    try:
        await access.prepare()
        yield access
    finally:
        for connection in both:
            await connection.aclose()


async def play(access: Access) -> dict[str, Any]:
    """Play the tables and the dialogues."""
    return {
        "requests": await play_table(access),
        "second": await play_second(access),
        "dialogues": await play_dialogues(access),
    }


def start_kafka() -> RealKafka:
    """A Kafka with rules of access."""
    properties = {"auto.create.topics.enable": "true"}
    return RealKafka(properties, secure=SecureListener(USERS, tls=False))


def read_golden() -> dict[str, Any]:
    """What was recorded."""
    golden: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return golden


async def _play_on(kafka: RealKafka) -> dict[str, Any]:
    async with connected(tcp(kafka.bootstrap_servers), tcp(kafka.secure_servers)) as access:
        return await play(access)


def record(path: Path, source: str) -> None:
    """Play everything on a real Kafka, and write what it answered."""
    with start_kafka() as kafka:
        golden = {"recorded_from": source, **trio.run(_play_on, kafka)}
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(GOLDEN, sys.argv[1] if len(sys.argv) > 1 else "unknown")
