"""``GroupCluster``: the groups of a cluster, and the changes that the commands make to them.

All calls block. An error names the group, and the permission that a refused user lacks.

Source: KIP-396, KIP-518, KIP-848; Kafka's ``ConsumerGroupCommand`` for what the commands need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, final

import attrs
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)

from kgroup.bounds import did_you_mean
from kgroup.cli.admin_client import (
    AdminConnection,
    ClusterError,
    Refusal,
    as_librdkafka,
    passes,
    unanswered,
)
from kgroup.cli.groups.committed import committed
from kgroup.cli.groups.subscriptions import subscriptions
from kgroup.cli.groups.values import Group, GroupMember, Listing
from kgroup.error_codes import ErrorCode
from kgroup.permissions import to_grant
from kgroup.security.settings import Security
from kgroup.types import TopicPartition

__all__ = ["GroupCluster"]

_STATES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_DEAD: Final = "Dead"
CLASSIC: Final = "classic"
_COMPARED: Final = 3
"""For so many names of topics that are not seen, the nearest one is looked for."""
UNKNOWN: Final = "Unknown"
"""Also the state of a KIP-848 group that assigns or reconciles: librdkafka has no name for it."""
_ADVICE: Final[Mapping[int, str]] = dict.fromkeys(
    (
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "it has members now; stop them first, and wait until the sessions of static and killed ones"
    " have ended",
)
"""What an error means for an operator, where Kafka's name of it does not say so."""
_NO_OFFSETS: Final = (
    "GROUP_ID_NOT_FOUND: a group of this name has no committed offsets of its own, as a share group"
    " has none; choose another name"
)
"""What that error of a commit means: one for a name that is free makes a group."""


@final
class GroupCluster:
    """The consumer groups of a cluster.

    Args:
        bootstrap_servers: the cluster.
        security: how connections are encrypted, and how the client logs in.
        timeout: seconds for each request.

    Raises:
        ClusterError: no broker can be reached, or the login is refused.
    """

    def __init__(self, bootstrap_servers: str, security: Security, timeout: float) -> None:
        self._servers = bootstrap_servers
        self._security = security
        self._timeout = timeout
        self.connection: Final = AdminConnection(bootstrap_servers, security, timeout)

    def list(self) -> tuple[tuple[Listing, ...], tuple[str, ...]]:
        """The groups that the user may see, sorted by name, and the errors of single brokers.

        Raises:
            ClusterError: no broker answered.
        """
        found = self.connection.one(
            "the list of groups",
            lambda client, limit: client.list_consumer_groups(request_timeout=limit),
            of_all=True,
        )
        listings = (
            Listing(one.group_id, _STATES.get(one.state, UNKNOWN), _protocol(one.type))
            for one in found.valid
        )
        errors = tuple(map(self._hiding, found.errors))
        if errors:
            self.connection.connect_again()
        return tuple(sorted(listings, key=lambda one: one.group_id)), errors

    def _hiding(self, error: KafkaException | KafkaError) -> str:
        """Why a list lacks the groups of one broker; librdkafka's own errors are no exceptions."""
        refusal = Refusal.of(error.args[0] if isinstance(error, KafkaException) else error)
        if unanswered(refusal):
            return f"a broker has not answered within {self._timeout:g} s"
        grant = to_grant(refusal.code)
        return f"{refusal.text}; {grant}" if grant else refusal.text

    def describe(self, group_ids: Iterable[str]) -> dict[str, Group]:
        """Describe groups.

        Raises:
            ClusterError: a group does not exist, or cannot be described.
        """
        found = self._find_all(group_ids)
        for group_id, group in found.items():
            if group is None:
                raise ClusterError(self.missing(group_id))
        return {group_id: group for group_id, group in found.items() if group is not None}

    def all(self) -> tuple[Sequence[Group], Sequence[str]]:
        """All groups that can be described, and what hides others.

        Raises:
            ClusterError: no broker answered.
        """
        listings, errors = self.list()
        found, faults = self._find(one.group_id for one in listings)
        groups = [group for group in found.values() if group is not None]
        return groups, (*errors, *faults)

    def _find_all(self, group_ids: Iterable[str]) -> dict[str, Group | None]:
        """As `_find`, where each of the groups is needed.

        Raises:
            ClusterError: a group cannot be described.
        """
        found, faults = self._find(group_ids)
        if faults:
            raise ClusterError(faults[0])
        return found

    def _find(self, group_ids: Iterable[str]) -> tuple[dict[str, Group | None], Sequence[str]]:
        """Describe groups, None for one that does not exist; and for the others why they cannot be.

        Raises:
            ClusterError: no broker answered.
        """
        described = self.connection.each(
            lambda client, ids, limit: client.describe_consumer_groups(
                list(ids), request_timeout=limit
            ),
            group_ids,
        )
        groups: dict[str, Group | None] = {}
        faults: list[str] = []
        for group_id, found in described.items():
            if not isinstance(found, Refusal):
                group = _group(found)
                groups[group_id] = None if group.state == _DEAD else group
            elif found.code == ErrorCode.GROUP_ID_NOT_FOUND:
                groups[group_id] = None
            else:
                why = found.explained("DESCRIBE", group=group_id, may_be_missing=True)
                faults.append(f"group {group_id!r} cannot be described: {why}")
        return groups, faults

    def missing(self, group_id: str) -> str:
        """That there is no such group, with the nearest name that there is.

        Raises:
            ClusterError: no broker answered.
        """
        listings, _ = self.list()
        near = did_you_mean(group_id, (one.group_id for one in listings))
        return f"there is no group {group_id!r}{near}"

    def find(self, group_id: str) -> Group | None:
        """Describe one group; None if it does not exist.

        Raises:
            ClusterError: it cannot be described.
        """
        return self._find_all([group_id])[group_id]

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        """The offsets that a group has committed.

        Raises:
            ClusterError: they cannot be fetched.
        """
        return committed(group_id).send(self._servers, group_id, self._security, self._timeout)

    def with_subscriptions(self, groups: Iterable[Group]) -> Iterator[Group]:
        """The groups, with the topics of each member, and those that the user does not see.

        Only members of the classic protocol report their topics.

        Raises:
            ClusterError: they cannot be fetched.
        """
        names: frozenset[str] | None = None
        for group in groups:
            if group.protocol != CLASSIC or not group.members:
                yield group
                continue
            request = subscriptions(group.group_id)
            found = request.send(self._servers, group.group_id, self._security, self._timeout)
            if names is None:
                names = self.connection.topic_names()
            members = tuple(
                attrs.evolve(one, topics=found.get(one.member_id)) for one in group.members
            )
            named = {topic for one in members for topic in one.topics or ()}
            unseen = sorted(named - names)
            # Other members decide how many there are, and each comparison takes time.
            nearest = {topic: did_you_mean(topic, names) for topic in unseen[:_COMPARED]}
            nearest |= dict.fromkeys(unseen[_COMPARED:], "")
            yield attrs.evolve(group, members=members, topics_not_seen=nearest)

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets for a group without members.

        Returns:
            for each partition None, or why it was not confirmed: a commit that got no answer, or an
            error that passes, may have been applied, also if another attempt was refused.

        Raises:
            ClusterError: the group refuses all of it.
        """
        request = ConsumerGroupTopicPartitions(
            group_id, [as_librdkafka(one, offset) for one, offset in offsets.items()]
        )
        found = self.connection.change(
            lambda client, _, limit: client.alter_consumer_group_offsets(
                [request], request_timeout=limit
            ),
            [group_id],
            "the offset may have been set: see `kgroup groups lag`",
            _unless_error_passes,
        )[group_id]
        if isinstance(found, Refusal):
            why = _refused(found, "READ", group=group_id)
            if found.outcome:
                return dict.fromkeys(offsets, why)
            raise ClusterError(f"the offsets of group {group_id!r} cannot be set: {why}")
        return {
            TopicPartition(one.topic, one.partition): (
                None
                if one.error is None
                else _uncommitted(Refusal.of(one.error), one.topic, group_id)
            )
            for one in found.topic_partitions
        }

    def delete(self, group_ids: Iterable[str]) -> dict[str, str | None]:
        """Delete groups with their offsets.

        Returns:
            for each group None, or why it was refused, or that there was no answer.

        Raises:
            ClusterError: the login was refused.
        """
        outcomes = self.connection.change(
            lambda client, ids, limit: client.delete_consumer_groups(
                list(ids), request_timeout=limit
            ),
            group_ids,
            "the group may have been deleted: see `kgroup groups list`",
        )
        return {
            group_id: _refused(outcome, "DELETE", group=group_id)
            if isinstance(outcome, Refusal)
            else None
            for group_id, outcome in outcomes.items()
        }


def _refused(refusal: Refusal, operation: str, *, topic: str = "", group: str = "") -> str:
    """Why a broker refused, and what to do.

    Args:
        refusal: its error.
        operation: what the request needs.
        topic: the topic that it is about.
        group: the group that it is about.
    """
    if (advice := _ADVICE.get(refusal.code)) is not None:
        return refusal.with_outcome(advice)
    return refusal.explained(operation, topic=topic, group=group)


def _uncommitted(refusal: Refusal, topic: str, group_id: str) -> str:
    if refusal.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return _NO_OFFSETS
    return _refused(refusal, "READ", topic=topic, group=group_id)


def _unless_error_passes(committed: Any) -> Any | Refusal:
    """The answer to a commit, or the error of a partition that passes; all have the same then.

    librdkafka does not retry such an error.
    """
    errors = (Refusal.of(one.error) for one in committed.topic_partitions if one.error is not None)
    return next(filter(passes, errors), committed)


def _protocol(kind: ConsumerGroupType) -> str:
    return str(kind.name).lower()


def _group(found: Any) -> Group:
    """The group in an answer of librdkafka."""
    where = found.coordinator
    members = [
        GroupMember(
            member_id=one.member_id,
            client_id=one.client_id,
            host=one.host.lstrip("/"),
            group_instance_id=one.group_instance_id,
            partitions=_partitions(one.assignment),
            target=None if one.target_assignment is None else _partitions(one.target_assignment),
        )
        for one in found.members
    ]
    return Group(
        group_id=found.group_id,
        state=_STATES.get(found.state, UNKNOWN),
        protocol=_protocol(found.type),
        assignor=found.partition_assignor,
        coordinator="" if where is None else f"{where.host}:{where.port} ({where.id})",
        members=tuple(sorted(members, key=lambda one: (one.client_id, one.member_id))),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    """The partitions of a member, without those whose topic has an impossible name.

    The group's leader has chosen the names; confluent-kafka fails at one that is no UTF-8.
    """
    found = []
    for one in assignment.topic_partitions:
        with suppress(UnicodeDecodeError):
            found.append(TopicPartition(one.topic, one.partition))
    return tuple(sorted(found))
