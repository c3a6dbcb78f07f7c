"""The cluster as a member sees it: which brokers there are, which topics, and where they begin.

Questions that any broker can answer go to one that is known, and to the next if it does not
answer; one that did not answer last time is asked last. Questions about a partition go to its
leader. Nothing here retries beyond that: what to do about an error is the recovery table's to
say. Topic auto-creation is off in every request.

Left to others: the coordinator's requests (``kgroup.client.coordinator``) and every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, final

import attrs
import trio

from kgroup.addresses import split_address
from kgroup.client import responses
from kgroup.client.error_policy import Action, Request, broker_error, reaction_for
from kgroup.client.partition_leaders import PartitionLeaders, request_all
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    KgroupError,
    RequestTimeoutError,
    TransportError,
    UnsupportedVersionError,
)
from kgroup.interfaces import Compute, Random, StreamOpener
from kgroup.types import BrokerAddress, IsolationLevel, TopicInfo, TopicPartition, by_topic
from kgroup.wire.broker_connection import BrokerConnection
from kgroup.wire.codec import milliseconds
from kgroup.worker_thread import compute_inline

EARLIEST: Final = -2
"""The timestamp by which ListOffsets means the first offset."""
LATEST: Final = -1
"""The timestamp by which ListOffsets means the end of what may be read."""
PATIENCE: Final = 3
"""Times ``request_timeout`` for a question that any broker can answer, however many are asked."""
_NOT_A_REPLICA: Final = -1
_ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
_GROUP: Final = 0

T = TypeVar("T")


@final
@attrs.frozen(kw_only=True)
class Metadata:
    """What a broker told about topics.

    Attributes:
        topics: those that exist.
        leaders: for each partition that has one the node id of its leader.
        missing: those asked for that do not exist, or whose partitions are not known yet.
        internal: those of ``topics`` that are Kafka's own.
        refused: those of other members' that this one may not read, or that no topic is called,
            and what the broker says of each.
    """

    topics: Mapping[str, TopicInfo]
    leaders: Mapping[TopicPartition, int]
    missing: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()
    refused: Mapping[str, str] = attrs.field(factory=dict)


@final
class Cluster:
    """Brokers of one cluster and lazily opened connections to them. Close it when done."""

    def __init__(
        self,
        config: GroupConfig,
        open_stream: StreamOpener,
        random: Random,
        compute: Compute = compute_inline,
    ) -> None:
        self._config = config
        self._compute = compute
        self._open_stream = open_stream
        self._random = random
        self._brokers: dict[int, BrokerAddress] = {}
        self._links: dict[tuple[str, int], BrokerConnection] = {}
        self._bootstrap = [split_address(server) for server in config.bootstrap_servers]
        self._leaders = PartitionLeaders()
        self._silent: set[tuple[str, int]] = set()
        """Addresses that did not answer when they were last asked."""

    def link(self, host: str, port: int) -> BrokerConnection:
        """A connection of its own to an address; the caller closes it."""
        return BrokerConnection(
            self._open_stream,
            host,
            port,
            client_id=self._config.client_id,
            compute=self._compute,
        )

    async def metadata(
        self, topics: Collection[str] | None, foreign: Collection[str] = ()
    ) -> Metadata:
        """Ask some broker for topics; None means all.

        Args:
            topics: which ones.
            foreign: those of them that only other members ask for. An error that concerns one of
                these is noted in the result and raises nothing.

        Raises:
            TransportError: no broker answered.
            BrokerError: the request, or a topic in it, was answered with an error that is not
                merely "not there yet".

        Cancellation: nothing changes.
        """
        wanted = None if topics is None else [{"name": name} for name in sorted(topics)]
        fields = {
            "topics": wanted,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        asked_for = None if topics is None else frozenset(topics)
        answer = await self.ask_any(
            "metadata",
            lambda version: _metadata_fields(fields, version),
            partial(_checked_metadata, wanted=asked_for),
        )
        self._check(int(getattr(answer, "error_code", 0)))
        gone = self._learn_brokers(answer)
        told = self._read_topics(answer, asked_for or frozenset(), frozenset(foreign))
        self._leaders.learn(told.topics.keys() | told.missing, told.leaders)
        await _close(gone)
        return told

    async def find_coordinator(self, group_id: str) -> BrokerAddress:
        """Ask some broker which one coordinates the group.

        Raises:
            TransportError: no broker answered.
            BrokerError: the answer is an error.

        Source: KIP-699 for the form with several keys.
        """
        return await self.ask_any(
            "find_coordinator",
            partial(_coordinator_fields, group_id),
            partial(responses.coordinator, group_id),
        )

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        *,
        isolation_level: IsolationLevel | None = None,
        remembered: bool = False,
    ) -> Mapping[TopicPartition, int | BrokerError | TransportError]:
        """The offset at a timestamp, or `EARLIEST`, or `LATEST`, from each partition's leader.

        One request for each leader, all at the same time. A partition without a known leader is
        answered with LEADER_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, those of a leader that
        did not answer with what went wrong on the way.

        Args:
            partitions: which ones.
            timestamp: milliseconds, or `EARLIEST`, or `LATEST`.
            isolation_level: whether `LATEST` is the last stable offset; the group's by default.
            remembered: ask the leaders that the last Metadata answer named, for who asks often.
                PartitionLeaders are looked up where none is remembered, and again after one did not
                answer, or in a way that says who leads has changed (the table's ``find``).

        Raises:
            TransportError: while looking for the leaders no broker answered.
            BrokerError | UnsupportedVersionError: a leader does not let this client in, or
                shares no version with it; the other leaders have been waited for.

        Cancellation: requests that were sent break their connections; nothing else.
        """
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        missing: Collection[str] = ()
        lacking = {name for name in partitions if not (remembered and self._leader(name))}
        if lacking:
            missing = (await self.metadata({name.topic for name in lacking})).missing
        offsets: dict[TopicPartition, int | BrokerError | TransportError] = {}
        by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
        for wanted in sorted(partitions):
            leader = self._leader(wanted)
            if leader is not None:
                by_leader.setdefault(leader, []).append(wanted)
            else:
                absent = wanted.topic in missing
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if absent
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
                offsets[wanted] = broker_error(Request.LIST_OFFSETS, code, str(wanted))
        level = self._config.isolation_level if isolation_level is None else isolation_level
        told = await request_all(
            [
                partial(self._ask_leader, leader, theirs, timestamp, level)
                for leader, theirs in by_leader.items()
            ]
        )
        for theirs, answer in zip(by_leader.values(), told, strict=True):
            offsets.update(
                dict.fromkeys(theirs, answer) if isinstance(answer, TransportError) else answer
            )
        self._leaders.heed(Request.LIST_OFFSETS, offsets)
        return offsets

    async def ask_any(
        self,
        api: str,
        fields: Callable[[int], Mapping[str, Any]],
        read: Callable[[Any], T],
    ) -> T:
        """Ask one broker after the other until one answers, or `PATIENCE` has passed for all.

        Args:
            api: kio's name of the request.
            fields: its fields by version.
            read: as in `BrokerConnection.ask_for`; a broker whose answer it finds wrong has not
                answered.

        Raises:
            TransportError: none did; it is the last one's.
            UnsupportedVersionError: none did, and the last one shares no version.
            BrokerError: what `read` raises.
        """
        longest = self._config.request_timeout
        deadline = trio.current_time() + PATIENCE * longest
        failure: KgroupError | None = None
        for host, port in self._addresses():
            left = deadline - trio.current_time()
            if isinstance(failure, RequestTimeoutError) and left <= 0:
                break
            try:
                answer = await self._link(host, port).request_value(
                    read, api, fields, timeout=min(longest, max(left, 0.0))
                )
            except (TransportError, UnsupportedVersionError) as error:
                failure = error
                self._silent.add((host, port))
            else:
                self._silent.discard((host, port))
                return answer
        assert failure is not None  # there is at least one bootstrap address
        raise failure

    async def aclose(self) -> None:
        """Close every connection.

        Cancellation: they are closed nevertheless.
        """
        links, self._links = list(self._links.values()), {}
        await _close(links)

    async def _ask_leader(
        self,
        leader: BrokerAddress,
        partitions: Collection[TopicPartition],
        timestamp: int,
        isolation_level: IsolationLevel,
    ) -> Mapping[TopicPartition, int | BrokerError]:
        fields = {
            "replica_id": _NOT_A_REPLICA,
            "isolation_level": _ISOLATION[isolation_level],
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": number, "timestamp": timestamp} for number in numbers
                    ],
                }
                for topic, numbers in by_topic(partitions).items()
            ],
        }
        found = await self._link(leader.host, leader.port).request_value(
            partial(responses.listed_offsets, wanted=partitions, may_lack=timestamp >= 0),
            "list_offsets",
            lambda version: _list_offsets_fields(fields, version, self._config.request_timeout),
            timeout=self._config.request_timeout,
        )
        return {
            name: broker_error(Request.LIST_OFFSETS, code, str(name)) if code else offset
            for name, (code, offset) in found.items()
        }

    def _read_topics(
        self, answer: Any, wanted: frozenset[str], foreign: frozenset[str]
    ) -> Metadata:
        racks = {node: broker.rack for node, broker in self._brokers.items() if broker.rack}
        topics: dict[str, TopicInfo] = {}
        leaders: dict[TopicPartition, int] = {}
        internal = set()
        refused: dict[str, str] = {}
        for topic in answer.topics:
            code = int(topic.error_code)
            if code:
                reaction = reaction_for(Request.METADATA, code)
                if reaction.action is Action.IGNORE:
                    continue
                error = broker_error(Request.METADATA, code, f"topic {topic.name!r}")
                if topic.name not in foreign:
                    raise error
                refused[str(topic.name)] = error.name
                continue
            parts = sorted(topic.partitions, key=lambda part: int(part.partition_index))
            if parts and parts[-1].partition_index != len(parts) - 1:
                continue  # the broker does not know all of them yet
            topics[topic.name] = TopicInfo(
                name=topic.name,
                partitions=len(parts),
                racks=tuple(
                    tuple(racks[node] for node in part.replica_nodes if node in racks)
                    for part in parts
                )
                if racks
                else (),
                topic_id=getattr(topic, "topic_id", None),
            )
            if topic.is_internal:
                internal.add(str(topic.name))
            for part in parts:
                if part.leader_id >= 0:
                    leaders[TopicPartition(topic.name, part.partition_index)] = part.leader_id
        return Metadata(
            topics=topics,
            leaders=leaders,
            missing=wanted - topics.keys() - refused.keys(),
            internal=frozenset(internal),
            refused=refused,
        )

    def _check(self, code: int) -> None:
        """Raise what the answer as a whole says: without this it would name no topic."""
        if not code:
            return
        reaction = reaction_for(Request.METADATA, code)
        if reaction.find:
            self._brokers = {}
        if reaction.action is not Action.IGNORE:
            raise broker_error(Request.METADATA, code)

    def _learn_brokers(self, answer: Any) -> list[BrokerConnection]:
        """Replace the known brokers; returns the links to addresses that no broker has now."""
        brokers = {
            int(item.node_id): BrokerAddress(
                int(item.node_id), item.host, int(item.port), item.rack
            )
            for item in answer.brokers
        }
        # A broker that is starting may tell of none; those known before are better than nothing.
        if not brokers:
            return []
        self._brokers = brokers
        known = {*self._bootstrap, *((item.host, item.port) for item in brokers.values())}
        self._silent &= known
        return [self._links.pop(address) for address in self._links.keys() - known]

    def _leader(self, partition: TopicPartition) -> BrokerAddress | None:
        """The leader, if one is known, and where it is."""
        node = self._leaders.of(partition)
        return None if node is None else self._brokers.get(node)

    def _addresses(self) -> list[tuple[str, int]]:
        """Known brokers in random order, those with an open connection first.

        A bootstrap server is the second, because all that a broker said of the others may be
        wrong; the other ones follow. At the end come those that did not answer last time: one
        that cannot be reached costs a whole ``request_timeout`` each time that it is asked.
        """
        known = [(broker.host, broker.port) for broker in self._brokers.values()]
        order = sorted(known, key=lambda address: (address not in self._links, self._chance()))
        rest = [address for address in self._bootstrap if address not in known]
        mixed = [*order[:1], *rest[:1], *order[1:], *rest[1:]]
        return sorted(mixed, key=lambda address: address in self._silent)

    def _chance(self) -> float:
        return self._random.random()

    def _link(self, host: str, port: int) -> BrokerConnection:
        if (host, port) not in self._links:
            self._links[host, port] = self.link(host, port)
        return self._links[host, port]


async def _close(links: Iterable[BrokerConnection]) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
        for link in links:
            await link.aclose()
    await trio.lowlevel.checkpoint()


def _checked_metadata(answer: Any, wanted: frozenset[str] | None) -> Any:
    if not getattr(answer, "error_code", 0):
        responses.check_metadata(answer, wanted)
    return answer


def _metadata_fields(fields: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    kept = dict(fields)
    if version < 8 or version > 10:  # KIP-430 put it there, KIP-700 took it out again
        del kept["include_cluster_authorized_operations"]
    if version < 8:
        del kept["include_topic_authorized_operations"]
    if version >= 10 and kept["topics"] is not None:  # KIP-516
        kept["topics"] = [{"topic_id": None, **topic} for topic in kept["topics"]]
    return kept


def _coordinator_fields(group_id: str, version: int) -> Mapping[str, Any]:
    if version >= 4:
        return {"key_type": _GROUP, "coordinator_keys": [group_id]}
    return {"key": group_id, **({"key_type": _GROUP} if version >= 1 else {})}


def _list_offsets_fields(
    fields: Mapping[str, Any], version: int, seconds: float
) -> Mapping[str, Any]:
    kept = dict(fields)
    if version < 2:
        del kept["isolation_level"]
    if version >= 10:
        kept["timeout"] = milliseconds(seconds, "request_timeout")
    return kept
