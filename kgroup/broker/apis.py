"""Which APIs the embedded broker offers, in which versions, and why not in others.

ApiVersions is answered from this table, and requests are dispatched by it. Where the table stops
before the newest version, its reason names what that version adds and this broker cannot do.

Source: the message definitions of Kafka 4 and the KIPs named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.broker.handlers import (
    acls,
    admin_queries,
    configs,
    fetch,
    groups,
    leaders,
    metadata,
    offsets,
    produce,
    reassignments,
    sasl,
    scram,
    topics,
    transactions,
    unsupported,
    versions,
)
from kgroup.broker.request_context import Handler, RequestContext


@final
@attrs.frozen
class Api:
    """One API: the versions offered, its handler, and why there is no higher version.

    Attributes:
        named_from: the lowest version that ApiVersions names, if that is not `lowest`.
    """

    lowest: int
    highest: int
    handler: Handler
    reason: str
    named_from: int | None = None

    def offers(self, version: int) -> bool:
        """Whether a version is offered."""
        return self.lowest <= version <= self.highest


_NEWEST: Final = "the newest there is"


async def _api_versions(context: RequestContext) -> Mapping[str, object]:
    named = (
        (name, api.lowest if api.named_from is None else api.named_from, api.highest)
        for name, api in APIS.items()
    )
    return versions.api_versions(context, named)


#: kio's name of the API -> what is offered. The lowest versions are those that Kafka 4 kept.
APIS: Final[Mapping[str, Api]] = {
    # librdkafka up to 2.10 compresses by gzip, snappy and lz4 only if version 0 is named
    # (KAFKA-18659).
    "produce": Api(
        3, 11, produce.produce, "v12 begins transactions by writing (KIP-890)", named_from=0
    ),
    "fetch": Api(4, 16, fetch.fetch, "from v17 on the additions are for follower replicas"),
    "list_offsets": Api(1, 11, offsets.list_offsets, _NEWEST),
    "metadata": Api(0, 13, metadata.metadata, _NEWEST),
    "offset_commit": Api(2, 9, groups.offset_commit, "v10 names topics by id only (KIP-848)"),
    "offset_fetch": Api(1, 9, groups.offset_fetch, "v10 names topics by id only (KIP-848)"),
    "find_coordinator": Api(0, 5, metadata.find_coordinator, "v6 is for share groups (KIP-932)"),
    "join_group": Api(0, 9, groups.join_group, _NEWEST),
    "heartbeat": Api(0, 4, groups.heartbeat, _NEWEST),
    "leave_group": Api(0, 5, groups.leave_group, _NEWEST),
    "sync_group": Api(0, 5, groups.sync_group, _NEWEST),
    "describe_groups": Api(0, 6, groups.describe_groups, _NEWEST),
    "list_groups": Api(0, 5, groups.list_groups, _NEWEST),
    "sasl_handshake": Api(0, 1, sasl.sasl_handshake, _NEWEST),
    "api_versions": Api(0, 4, _api_versions, _NEWEST),
    "create_topics": Api(2, 7, topics.create_topics, _NEWEST),
    "delete_topics": Api(1, 6, topics.delete_topics, _NEWEST),
    "delete_records": Api(0, 2, offsets.delete_records, _NEWEST),
    "init_producer_id": Api(0, 5, transactions.init_producer_id, "v6 is two-phase commit"),
    "offset_for_leader_epoch": Api(2, 4, offsets.offset_for_leader_epoch, _NEWEST),
    "add_partitions_to_txn": Api(
        0, 3, transactions.add_partitions_to_txn, "from v4 on it is sent by brokers (KIP-890)"
    ),
    "add_offsets_to_txn": Api(0, 4, transactions.add_offsets_to_txn, _NEWEST),
    "end_txn": Api(0, 4, transactions.end_txn, "v5 gives a new epoch each time (KIP-890)"),
    "txn_offset_commit": Api(
        0, 4, transactions.txn_offset_commit, "v5 begins transactions by committing (KIP-890)"
    ),
    "describe_acls": Api(1, 3, acls.describe_acls, _NEWEST),
    "create_acls": Api(1, 3, acls.create_acls, _NEWEST),
    "delete_acls": Api(1, 3, acls.delete_acls, _NEWEST),
    "describe_configs": Api(1, 4, configs.describe_configs, _NEWEST),
    "alter_configs": Api(0, 2, configs.alter_configs, _NEWEST),
    "describe_log_dirs": Api(1, 5, admin_queries.describe_log_dirs, _NEWEST),
    "sasl_authenticate": Api(0, 2, sasl.sasl_authenticate, _NEWEST),
    "create_partitions": Api(0, 3, topics.create_partitions, _NEWEST),
    "delete_groups": Api(0, 2, groups.delete_groups, _NEWEST),
    "elect_leaders": Api(0, 2, leaders.elect_leaders, _NEWEST),
    "incremental_alter_configs": Api(0, 1, configs.incremental_alter_configs, _NEWEST),
    "alter_partition_reassignments": Api(
        0, 1, reassignments.alter_partition_reassignments, _NEWEST
    ),
    "list_partition_reassignments": Api(0, 0, reassignments.list_partition_reassignments, _NEWEST),
    "offset_delete": Api(0, 0, groups.offset_delete, _NEWEST),
    "describe_client_quotas": Api(0, 1, admin_queries.describe_client_quotas, _NEWEST),
    "describe_user_scram_credentials": Api(0, 0, scram.describe_user_scram_credentials, _NEWEST),
    "alter_user_scram_credentials": Api(0, 0, scram.alter_user_scram_credentials, _NEWEST),
    "describe_cluster": Api(0, 2, metadata.describe_cluster, _NEWEST),
    "describe_producers": Api(0, 0, admin_queries.describe_producers, _NEWEST),
    "describe_transactions": Api(0, 0, admin_queries.describe_transactions, _NEWEST),
    "list_transactions": Api(0, 2, admin_queries.list_transactions, _NEWEST),
    "consumer_group_heartbeat": Api(0, 1, unsupported.without_new_groups, _NEWEST),
    "consumer_group_describe": Api(0, 1, unsupported.without_new_groups, _NEWEST),
    "list_config_resources": Api(0, 1, configs.list_config_resources, _NEWEST),
    "describe_topic_partitions": Api(0, 0, metadata.describe_topic_partitions, _NEWEST),
}
