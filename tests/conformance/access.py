"""Access control at the level of requests, and what Apache Kafka answered to it.

Two things are recorded. The first is a table: what each request is answered if its user has one
right, and nothing else, or beside rights that the request needs in any case. The second are
dialogues: rules are created, described and deleted, and a user tries what they allow.

    python -m tests.conformance.access

plays all of it on a real Kafka, which it starts, and writes ``access.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, final

import trio

from kgroup.broker.security.acl_filters import PatternType, PermissionType
from kgroup.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener
from tests.conformance.golden import HERE
from tests.conformance.handshakes import plain
from tests.conformance.player import tcp
from tests.conformance.wire import Connection, Fields, NoAnswerError, Opener

GOLDEN: Final = HERE / "access.json"
USERS: Final = {"alice": "alice-secret", "root": "root-secret"}
TOPIC, GROUP, TRANSACTION = "t", "g", "x"
MISSING: Final = "missing"
NAMES: Final = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
}
_ANY: Final = 1
_VISIBLE_WITHIN: Final = 10.0
_VISIBLE_SOON: Final = 0.3
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
_MEMBER: Final[Fields] = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}

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
    "AddPartitionsToTxn": (
        (WRITES_TRANSACTION,),
        "add_partitions_to_txn",
        0,
        {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
    ),
    "AddOffsetsToTxn": ((), "add_offsets_to_txn", 0, {**_IN_TRANSACTION, "group_id": GROUP}),
    "AddOffsetsToTxn by its writer": (
        (WRITES_TRANSACTION,),
        "add_offsets_to_txn",
        0,
        {**_IN_TRANSACTION, "group_id": GROUP},
    ),
    "EndTxn": ((), "end_txn", 0, {**_IN_TRANSACTION, "committed": True}),
    "TxnOffsetCommit": (
        (WRITES_TRANSACTION, READS_GROUP),
        "txn_offset_commit",
        0,
        {
            **_IN_TRANSACTION,
            "group_id": GROUP,
            "topics": _topic(partition_index=0, committed_offset=0, committed_metadata=""),
        },
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


def codes(answer: Any) -> list[int]:
    """The error codes of an answer, at any depth, without duplicates."""
    if isinstance(answer, Mapping):
        own = [int(value) for field, value in answer.items() if field == "error_code"]
        return sorted({*own, *(code for value in answer.values() for code in codes(value))})
    if isinstance(answer, list | tuple):
        return sorted({code for item in answer for code in codes(item)})
    return []


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
        self.lines: list[str] = []

    async def prepare(self) -> None:
        """Create the topic, and wait for coordinators and for numbers of producers."""
        topic = REQUESTS["CreateTopics of an existing topic"]
        await self._admin.request(*topic[1:], "access")
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
        """Create rules; if they are accepted, wait until the broker knows."""
        answer = await self._admin.request("create_acls", 3, {"creations": rules}, "access")
        if codes(answer) in ([], [0]):
            await self._wait(lambda found: len(found) >= len({str(one) for one in rules}))
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

    async def attempt(self, name: str) -> str:
        """What alice is answered to one of the requests, as error codes."""
        _, api, version, fields = REQUESTS[name]
        with trio.fail_after(_VISIBLE_WITHIN):
            answer = await self._alice.request(api, version, fields, "access")
        found = " ".join(map(str, codes(answer))) or "no error"
        if may := operations(answer):
            found += f", may {' '.join(may)}"
        return f"{found}, empty" if _is_empty(answer) else found

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
        " ".join(
            map(
                str,
                (
                    rule["principal"],
                    rule["host"],
                    PermissionType(rule["permission_type"]).name,
                    Operation(rule["operation"]).name,
                    ResourceType(resource["resource_type"]).name,
                    PatternType(resource["pattern_type"]).name,
                    resource["resource_name"],
                ),
            )
        )
        for resource in answer["resources"]
        for rule in resource["acls"]
    )


def _is_empty(answer: Fields) -> bool:
    """Whether an answer has lists, and nothing is in any of them, but brokers."""
    lists = [
        value for field, value in answer.items() if isinstance(value, tuple) and field != "brokers"
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
    )
    for field, values in {
        "principal_filter": ("User:alice", "User:*", "alice"),
        "host_filter": ("*", "10.0.0.1"),
        "operation": (2, 3, 14, 99),
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


async def _say_altered(
    a: Access, words: str, deletions: Fields | None = None, *upsertions: Fields
) -> None:
    answer = await a.alter_credentials(deletions or {}, upsertions)
    results = sorted(f"{one['user']!r} {_result(one)}" for one in answer["results"])
    a.lines.append(f"alter {words} -> {'; '.join(results)}")


async def _say_credentials(a: Access, *users: str) -> None:
    """Wait until the change before is visible, and note the credentials of users."""
    await trio.sleep(_VISIBLE_SOON)
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
    """Play the table and the dialogues."""
    return {"requests": await play_table(access), "dialogues": await play_dialogues(access)}


def start_kafka() -> RealKafka:
    """A Kafka with rules of access."""
    properties = {"auto.create.topics.enable": "false"}
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
