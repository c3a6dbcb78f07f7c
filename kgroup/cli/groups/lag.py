"""The lag of a group: for each partition what is committed, where the log ends, and who owns it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, final

import attrs

from kgroup.cli.admin_client import ClusterError
from kgroup.cli.groups.cluster import GroupCluster
from kgroup.cli.groups.coordinator_request import NoAnswerError
from kgroup.cli.groups.values import Group, GroupMember
from kgroup.cli.log_bounds import LogBounds, fetch_bounds
from kgroup.types import IsolationLevel, TopicPartition

__all__ = [
    "GroupLag",
    "PartitionLag",
    "compute_lag",
    "fetch_lags",
    "owner_names",
    "partitions_to_read",
]


@final
@attrs.frozen(kw_only=True)
class PartitionLag:
    """The lag of one partition.

    Attributes:
        partition: the partition.
        committed: the group's committed offset; None if there is none.
        bounds: of its log.
        owner: the member that owns it.
    """

    partition: TopicPartition
    committed: int | None
    bounds: LogBounds
    owner: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read; None if that is not known."""
        start, end = self.bounds.start, self.bounds.end
        if start is None or end is None:
            return None
        if self.committed is None:
            return 0 if start == end else None
        return max(0, end - max(self.committed, start))

    @property
    def note(self) -> str:
        """What is unusual about it."""
        start, end = self.bounds.start, self.bounds.end
        if self.bounds.fault:
            return self.bounds.fault
        if self.committed is None:
            return "nothing committed"
        if start is not None and self.committed < start:
            return f"{start - self.committed} offsets are gone: the log begins at {start}"
        if end is not None and self.committed > end:
            return "committed past the end"
        return ""


@final
@attrs.frozen(kw_only=True)
class GroupLag:
    """The lag of a group.

    Attributes:
        group: the group.
        isolation: which ends were compared: those of all records, or of committed ones.
        partitions: all partitions of the topics in which it has an owner or a committed offset,
            sorted.
    """

    group: Group
    isolation: IsolationLevel
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The sum of what is known."""
        return sum(one.lag or 0 for one in self.partitions)

    @property
    def unknown(self) -> int:
        """How many partitions have no known lag; the total is without theirs."""
        return sum(one.lag is None for one in self.partitions)

    @property
    def note(self) -> str:
        """Why there are no partitions, if there are none."""
        if self.partitions:
            return ""
        return (
            "nothing is committed on a topic that this user may see, and the coordinator reports no"
            f" partitions of members in the state {self.group.state}"
        )

    @property
    def idle(self) -> tuple[GroupMember, ...]:
        """The members that own nothing."""
        return tuple(member for member in self.group.members if not member.partitions)

    def as_json(self) -> dict[str, Any]:
        """The lag as an object of JSON."""
        return {
            "group_id": self.group.group_id,
            "state": self.group.state,
            "members": len(self.group.members),
            "isolation_level": self.isolation.value,
            "lag": self.total,
            "unknown": self.unknown,
            "note": self.note or None,
            "partitions": [_as_json(one) for one in self.partitions],
        }


def _as_json(one: PartitionLag) -> dict[str, Any]:
    owner = one.owner
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "committed": one.committed,
        "start": one.bounds.start,
        "end": one.bounds.end,
        "lag": one.lag,
        "owner": owner
        and {
            "member_id": owner.member_id,
            "client_id": owner.client_id,
            "host": owner.host,
            "group_instance_id": owner.group_instance_id,
        },
        "note": one.note or None,
    }


def fetch_lags(
    cluster: GroupCluster, groups: Iterable[Group], isolation: IsolationLevel
) -> tuple[list[GroupLag], list[str]]:
    """Request what groups have committed, and the ends of all their partitions together.

    A group has to read all partitions of its topics, so those count too of which it has committed
    nothing and which no member owns: during a rebalance no partition has an owner, and in a group
    without members their records wait unseen. Which topics the members subscribe to is not known
    then; Kafka reports it for a stable group only, whose members own what there is.

    Returns:
        the lags, and why those of other groups are not known.

    Raises:
        ClusterError: no broker answered.
    """
    found: list[tuple[Group, Mapping[TopicPartition, int]]] = []
    faults: list[str] = []
    silent = set[str]()
    for group in groups:
        if group.coordinator in silent:
            # To wait for it once for each of its groups may take hours.
            faults.append(f"group {group.group_id!r}: no answer from {group.coordinator} either")
            continue
        try:
            found.append((group, cluster.committed(group.group_id)))
        except ClusterError as error:
            faults.append(f"group {group.group_id!r}: {error}")
            # A coordinator that answers, and is loading one group's offsets, may have the others'.
            if isinstance(error, NoAnswerError) and group.coordinator:
                silent.add(group.coordinator)
    topics = cluster.connection.topics()
    read = [partitions_to_read({*committed, *group.owners}, topics) for group, committed in found]
    bounds = fetch_bounds(cluster.connection, sorted(set().union(*read)), isolation)
    lags = [
        compute_lag(group, isolation, partitions, committed, bounds)
        for (group, committed), partitions in zip(found, read, strict=True)
    ]
    return lags, faults


def partitions_to_read(
    known: Collection[TopicPartition], topics: Mapping[str, int]
) -> set[TopicPartition]:
    """All partitions of the topics of some partitions.

    Args:
        known: the partitions; one that does not exist any more is kept.
        topics: the topics of the cluster, with their numbers of partitions.
    """
    names = {one.topic for one in known}
    return {
        *known,
        *(TopicPartition(name, number) for name in names for number in range(topics.get(name, 0))),
    }


def compute_lag(
    group: Group,
    isolation: IsolationLevel,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, LogBounds],
) -> GroupLag:
    """The lag of a group in some partitions, whose bounds are given."""
    owners = group.owners
    return GroupLag(
        group=group,
        isolation=isolation,
        partitions=tuple(
            PartitionLag(
                partition=partition,
                committed=committed.get(partition),
                bounds=bounds[partition],
                owner=owners.get(partition),
            )
            for partition in sorted(partitions)
        ),
    )


def owner_names(members: Iterable[GroupMember]) -> dict[str, str]:
    """A short name of each member by its id: the client, or the id where clients share a name."""
    listed = list(members)
    shared = Counter(str(member) for member in listed)
    return {
        one.member_id: str(one) if shared[str(one)] == 1 else f"{one.member_id} at {one.host}"
        for one in listed
    }
