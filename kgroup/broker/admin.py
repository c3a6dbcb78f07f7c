"""The calls by which programs and tests change topics, records and groups of embedded brokers.

They use no connection: every call goes to the state that all brokers of a cluster share, so it does
not matter which broker leads a partition or coordinates a group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final

import trio

from kgroup import arguments
from kgroup.broker import batches
from kgroup.broker.broker_settings import as_texts
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.endpoint import Endpoint, refused_connection
from kgroup.broker.groups import requests, responses
from kgroup.broker.groups.responses import DescribedGroup
from kgroup.broker.log_reader import LogReader
from kgroup.broker.records import NewRecord, batch_of
from kgroup.broker.request_error import RequestError
from kgroup.broker.security.acls import Acl, Authorizer
from kgroup.broker.security.settings import check_user
from kgroup.broker.topics import UNSET
from kgroup.error_codes import ErrorCode
from kgroup.errors import ArgumentError, UsageError
from kgroup.security.secret import secret
from kgroup.types import OffsetAndMetadata, TopicPartition
from kgroup.uncopied import SEND_ADDRESS, Uncopied


class BrokerAdmin(Uncopied, ABC):
    """The methods that ``EmbeddedBroker`` and ``EmbeddedCluster`` have in common.

    All methods are called in the event loop in which the broker runs; elsewhere they raise a
    ``UsageError`` and do nothing. ``EmbeddedKafka.call`` calls them there. Properties, and methods
    that only say who leads or coordinates what, may be used anywhere.

    Attributes:
        log: reads records, for tests and in-memory consumers.
        cluster: the state that all brokers share.
    """

    _in_its_place = SEND_ADDRESS
    _variable: ClassVar[str]
    """What errors call it in an example."""

    def __init__(self, cluster: ClusterState, endpoints: Mapping[int, Endpoint]) -> None:
        self.cluster: Final = cluster
        self.log: Final = LogReader(cluster.topics)
        self._endpoints = endpoints
        self._loop = trio.lowlevel.current_trio_token()

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The value of a client's ``bootstrap.servers``."""

    @property
    def ca(self) -> str | None:
        """The authority of a certificate that was made on the spot, in PEM: ``Security.ca``."""
        tls = self.cluster.security.tls
        return None if tls is None else tls.ca

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection in memory to the broker at this address; a ``StreamOpener``.

        Raises:
            OSError: no broker has this address, or the one that has it does not listen.
            UsageError: another event loop than the broker's calls.

        Cancellation: nothing is left open.
        """
        for endpoint in self._endpoints.values():
            if (host, port) == (endpoint.host, endpoint.port):
                return await endpoint.connect()
        await trio.lowlevel.checkpoint()
        raise refused_connection(host, port)

    # Users.

    def set_user(self, name: str, password: str) -> None:
        """Create a user, or change the password; sessions that have begun go on.

        Raises:
            ConfigError: the name or the password cannot be used.
        """
        self._check_loop("set_user")
        check_user(name, secret(password))
        self.cluster.security.users.put(name, password)

    def remove_user(self, name: str) -> bool:
        """Remove a user, and return whether there was one; sessions that have begun go on.

        As in Kafka, a user who was removed is refused at the next login. ``end_sessions`` makes
        that now.

        Raises:
            ArgumentError: the name is no str.
        """
        self._check_loop("remove_user")
        arguments.instance("name", name, str)
        return self.cluster.security.users.remove(name)

    def add_acl(self, acl: Acl) -> None:
        """Add a rule of access; it counts from the next request on.

        Raises:
            UsageError: the broker was made without ``BrokerSecurity.acls``: it allows everything.
        """
        self._check_loop("add_acl")
        self._authorizer().add(acl)

    def remove_acl(self, acl: Acl) -> bool:
        """Remove a rule of access, and return whether there was such a rule.

        Raises:
            UsageError: as ``add_acl``.
        """
        self._check_loop("remove_acl")
        return self._authorizer().remove(acl)

    def _authorizer(self) -> Authorizer:
        authorizer = self.cluster.security.authorizer
        if not authorizer.enabled:
            raise UsageError("the broker has no access control; give BrokerSecurity(acls=[...])")
        return authorizer

    def end_sessions(self, user: str | None = None) -> int:
        """Cut the connections of a user, or of all clients, and return how many."""
        self._check_loop("end_sessions")
        return sum(endpoint.end_sessions(user) for endpoint in self._endpoints.values())

    def set_session_lifetime(self, seconds: float | None) -> None:
        """Change the lifetime of sessions that begin from now on; None for no end."""
        self._check_loop("set_session_lifetime")
        self.cluster.security.session_lifetime = arguments.seconds("seconds", seconds)

    # Topics and records.

    async def create_topic(
        self,
        name: str,
        partitions: int = UNSET,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = UNSET,
    ) -> None:
        """Create a topic.

        Args:
            name: its name.
            partitions: how many it has; by default ``num.partitions``.
            configs: by Kafka's names; values are texts, or are made texts by ``str``.
            replication_factor: how many brokers can lead a partition; by default
                ``default.replication.factor``.

        Raises:
            ArgumentError: a number is no int, or ``configs`` is no mapping.
            ConfigError: a value of ``configs`` has no text.
            UsageError: Kafka would refuse it; the text says why.
        """
        self._check_loop("create_topic")
        number = _set_or_checked("partitions", partitions)
        replicas = _set_or_checked("replication_factor", replication_factor)
        given: object = {} if configs is None else configs
        if not isinstance(given, Mapping):
            raise ArgumentError("configs", configs, "it must be a mapping of names to values")
        texts = as_texts({key: value for key, value in given.items() if value is not None})
        await trio.lowlevel.checkpoint()
        with as_usage_errors():
            self.cluster.topics.create(name, number, replication_factor=replicas, configs=texts)

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Increase a topic's partitions to this number.

        Raises:
            ArgumentError: the name is no str, or the number no int.
            UsageError: there is no such topic, it already has that many partitions, or fewer
                brokers are up than it has replicas.
        """
        self._check_loop("add_partitions")
        arguments.instance("name", name, str)
        number = arguments.whole("partitions", partitions, 1)
        await trio.lowlevel.checkpoint()
        with as_usage_errors():
            self.cluster.topics.grow(name, number)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it.

        Raises:
            ArgumentError: the name is no str.
            UsageError: there is no such topic.
        """
        self._check_loop("delete_topic")
        arguments.instance("name", name, str)
        await trio.lowlevel.checkpoint()
        topic = self.cluster.topics.get(name)
        if topic is None:
            raise UsageError(f"the embedded broker has no topic {name!r}")
        with as_usage_errors():
            self.cluster.delete_topic(topic)

    async def append(self, topic: str, partition: int, records: Sequence[bytes | NewRecord]) -> int:
        """Write records as one batch, without a producer, and return the offset of the first.

        Args:
            topic: an existing topic.
            partition: one of its partitions, whether or not a broker leads it now.
            records: values, or ``NewRecord`` for keys, headers, time stamps, tombstones.

        Raises:
            UsageError: there is no such partition, or the batch is too large.
            ArgumentError: a value is not bytes, the records are not a list or there is none, or
                ``topic`` or ``partition`` is of a wrong type.
        """
        self._check_loop("append")
        arguments.instance("topic", topic, str)
        number = arguments.whole("partition", partition, 0)
        await trio.lowlevel.checkpoint()
        given: object = records
        no_list = isinstance(given, bytes | bytearray | str) or not isinstance(given, Iterable)
        if no_list or not (records := list(records)):
            raise ArgumentError(
                "records", given, "it must be a list of at least one value, such as [b'a']"
            )
        now = self.cluster.now_ms()
        made = [one if isinstance(one, NewRecord) else NewRecord(one) for one in records]
        header, data = batches.check(batch_of(made, now))
        with as_usage_errors():
            log = self.cluster.topics.log(topic, number)
            return log.append(data, header, now).base_offset

    # Groups.

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that a group has committed; empty for an unknown group.

        A negative offset, which clients can commit, as to Kafka, is no position and is left out.

        Raises:
            ArgumentError: the id is no str.
        """
        self._check_loop("committed")
        arguments.instance("group_id", group_id, str)
        await trio.lowlevel.checkpoint()
        return {
            partition: OffsetAndMetadata(one.offset, max(one.leader_epoch, -1), one.metadata)
            for partition, one in self.cluster.shards.committed(group_id).items()
            if one.offset >= 0
        }

    async def groups(self) -> tuple[DescribedGroup, ...]:
        """Every group with its state and members, by group id.

        Groups that have no coordinator, or whose coordinator is loading, are left out.
        """
        self._check_loop("groups")
        await trio.lowlevel.checkpoint()
        described: list[DescribedGroup] = []
        for node in self.cluster.brokers.values():
            listed = await node.groups.handle(requests.ListGroups(), responses.GroupsListed)
            names = tuple(sorted(group.group_id for group in listed.groups))
            wanted = requests.DescribeGroups(version=6, group_ids=names)
            response = await node.groups.handle(wanted, responses.GroupsDescribed)
            described += [group for group in response.groups if not group.error]
        return tuple(sorted(described, key=lambda group: group.group_id))

    async def remove_member(self, group_id: str, member_id: str) -> None:
        """Remove a member from its group, as an administrator does; also a static one.

        Its next request is answered UNKNOWN_MEMBER_ID, so it has lost its generation; the others
        have its partitions after a rebalance. ``generation.member_id`` and `groups` have the id.

        Raises:
            ArgumentError: an argument is no str.
            UsageError: there is no such member, or its coordinator cannot say so now.
        """
        self._check_loop("remove_member")
        arguments.instance("group_id", group_id, str)
        arguments.instance("member_id", member_id, str)
        await trio.lowlevel.checkpoint()
        request = requests.LeaveGroup(
            version=5, group_id=group_id, members=(requests.LeavingMember(member_id=member_id),)
        )
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for node in self.cluster.brokers.values():
            response = await node.groups.handle(request, responses.LeaveCompleted)
            error = response.error or response.members[0].error
            if error == ErrorCode.NONE:
                return
            if error != ErrorCode.NOT_COORDINATOR:
                refused = error
        raise UsageError(
            f"member {member_id!r} of group {group_id!r} was not removed: {refused.name}"
        )

    async def restart_coordinator(self, *, away: float = 0.0, loading: float = 0.0) -> None:
        """Let every group coordinator fail over to itself.

        Parked requests are answered NOT_COORDINATOR, so that their clients look for the
        coordinator again. What Kafka writes to its log is kept; what it keeps only in memory
        (pending member ids, a generation that is not synced yet) is lost.

        Args:
            away: seconds in which requests are answered NOT_COORDINATOR.
            loading: seconds after that in which they are answered
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            ArgumentError: a time is no number of seconds.

        Cancellation: the coordinator is loaded at once.
        """
        self._check_loop("restart_coordinator")
        arguments.delay("away", away)
        arguments.delay("loading", loading)
        shards = self.cluster.shards
        await shards.load_after(shards.restart(), away=away, loading=loading)

    def _check_loop(self, call: str) -> None:
        """Check that a call is made in the broker's event loop.

        Elsewhere it would wake tasks that another loop runs: it would end half-way, and the broker
        with it, or wait for ever.

        Raises:
            UsageError: it is made in another event loop or thread.
        """
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._loop:
            return
        raise UsageError(
            f"{self!r}: {call}() was called outside of the event loop in which the broker runs, and"
            f" nothing was done; with the fixture embedded_kafka, or an EmbeddedKafka, write"
            f" kafka.call({self._variable}.{call}, ...) (docs/testing.md)"
        )


def _set_or_checked(name: str, number: int) -> int:
    return UNSET if number == UNSET else arguments.whole(name, number, 0)


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Turn an error that a client would get into a ``UsageError`` of the caller."""
    try:
        yield
    except RequestError as error:
        raise UsageError(f"the embedded broker refuses: {error}") from error
