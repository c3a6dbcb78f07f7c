"""The cluster as a member uses it: its brokers, its topics, its partition leaders and offsets.

A request that any broker can answer is sent to a known broker. If there is no response, or if one
side refuses the connection, it is sent to the next one; a broker with which it failed last time
comes last. A request about a partition is sent to its leader. There are no other retries: the error
policy decides about errors. No request lets the broker create topics.

A Metadata response is read in ``kgroup.client.metadata``, and the coordinator's requests are in
``kgroup.client.coordinator``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, zip_longest
from typing import Any, Final, TypeAlias, TypeVar, final
from uuid import UUID

import attrs
import trio

from kgroup.addresses import join_address, split_address
from kgroup.client import responses
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Action, Request, others_to_ask, reaction_to_code
from kgroup.client.metadata import Metadata, read_metadata
from kgroup.client.metadata_polls import MetadataPolls, polls_of
from kgroup.client.partition_leaders import PartitionLeaders, request_all
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthenticationError,
    BrokerError,
    RequestTimeoutError,
    TransportError,
    UnsupportedVersionError,
    short_list,
)
from kgroup.interfaces import Compute, Random, StreamOpener
from kgroup.types import (
    BrokerAddress,
    EpochEnd,
    IsolationLevel,
    TopicPartition,
    by_topic,
)
from kgroup.wire.broker_connection import BrokerConnection
from kgroup.wire.codec import milliseconds
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.metadata_request import metadata_fields
from kgroup.worker_thread import compute_inline

EARLIEST: Final = -2
"""The timestamp with which ListOffsets returns the first offset."""
LATEST: Final = -1
"""The timestamp with which ListOffsets returns the end of the readable log."""
PATIENCE: Final = 3
"""A request that any broker can answer fails after this many times ``request_timeout``, however
many brokers were tried."""
REFRESH_WITHIN: Final = 1.0
"""Seconds within which the brokers are requested; by default that of the leaders' polls, which
then bring them too."""
_MOST_NAMED: Final = 3
"""An error names so many of the brokers that did not respond; it is logged at each attempt."""
_NOT_A_REPLICA: Final = -1
_ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
_GROUP: Final = 0

T = TypeVar("T")
_Failure: TypeAlias = TransportError | UnsupportedVersionError | AuthenticationError


@final
class Cluster:
    """The brokers of one cluster, with connections that open on first use; to be closed.

    Attributes:
        known_addresses: the bootstrap servers, and the brokers that they have named, as
            ``host:port``; any thread may read it.
        topic_ids: the ids of topics, as the last Metadata response that had them says; a topic that
            is deleted and created again gets another one.
    """

    def __init__(
        self,
        config: GroupConfig,
        open_stream: StreamOpener,
        random: Random,
        compute: Compute = compute_inline,
    ) -> None:
        self._security = ConnectionSecurity(config.security, lambda: compute)
        self._config = config
        self._compute = compute
        self._open_stream = open_stream
        self._random = random
        self._process = os.getpid()
        self._brokers: dict[int, BrokerAddress] = {}
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._bootstrap = [split_address(server) for server in config.bootstrap_servers]
        self.known_addresses = frozenset(config.bootstrap_servers)
        self.topic_ids: Mapping[str, UUID] = {}
        self._leaders = PartitionLeaders()
        self._failed: dict[tuple[str, int], int] = {}
        """The addresses that did not respond to their last request; the last one has the greatest
        number."""
        self._failures = count(1)
        self._answered = trio.Event()
        """Any broker has answered: then the settings for TLS and the login are right."""
        self._suspected = trio.Event()
        self._suspected.set()

    def new_connection(self, host: str, port: int) -> BrokerConnection:
        """Make a new connection to an address, which the caller has to close."""
        return BrokerConnection(
            self._open_stream,
            host,
            port,
            client_id=self._config.client_id,
            open_timeout=self._config.request_timeout,
            compute=self._compute,
            security=self._security,
            process=self._process,  # a fork would be the same member of the group
        )

    async def metadata(
        self, topics: Collection[str] | None, foreign: Collection[str] = ()
    ) -> Metadata:
        """Request the metadata of topics from any broker.

        Args:
            topics: the topics; None means all.
            foreign: those of which an error is in the result's ``refused`` and is not raised, such
                as the topics to which only other members subscribe.

        Raises:
            TransportError: no broker responded.
            BrokerError: the response, or a topic in it, has an error that the error policy does
                not ignore; it ignores those of a topic that does not exist yet.

        Cancellation: nothing changes.
        """
        requested = None if topics is None else frozenset(topics)
        return await self._take_in(
            await self._request_metadata(requested), requested, frozenset(foreign)
        )

    def watch(
        self, topics: Collection[str], foreign: Collection[str], interval: float
    ) -> Callable[..., Awaitable[Metadata]]:
        """Watch the metadata of topics, with the other members of this event loop.

        The members that wait send one request for all of them, at each multiple of the interval.

        Args:
            topics: as for `metadata`.
            foreign: as for `metadata`.
            interval: the seconds between two requests.

        Returns:
            an async function for one caller. It returns what the next response says, or with
            ``only_changed=True`` what the next one says that is not the one that it returned last.
            It raises what `metadata` raises.
        """
        wanted, others = frozenset(topics), frozenset(foreign)
        polls = self._shared_polls(interval)
        last: Any = None

        async def following(*, only_changed: bool) -> Metadata:
            nonlocal last
            known, last = last if only_changed else None, None
            answer = await polls.wait(wanted, known, self._request_metadata)
            metadata = await self._take_in(answer, wanted, others)
            last = answer  # one that has an error is read again
            return metadata

        return following

    async def first_answered(self) -> None:
        """Wait until any broker has answered a request.

        Cancellation: nothing changes.
        """
        await self._answered.wait()

    def suspect_brokers(self) -> None:
        """The brokers may have other addresses by now, because one of them was lost."""
        self._suspected.set()

    async def brokers_suspected(self) -> None:
        """Wait until the brokers are suspected: from the beginning, and after `suspect_brokers`.

        The next Metadata response ends the suspicion.

        Only one task may wait. Cancellation: nothing changes.
        """
        await self._suspected.wait()

    async def refresh_brokers(self) -> None:
        """Request the brokers, and nothing else, together with the other members of this loop.

        Raises:
            TransportError | BrokerError: as for `metadata`.

        Cancellation: nothing changes.
        """
        polls = self._shared_polls(min(self._config.partition_watch_interval, REFRESH_WITHIN))
        no_topics = frozenset[str]()
        answer = await polls.wait(no_topics, None, self._request_metadata)
        await self._take_in(answer, no_topics, no_topics)

    async def find_coordinator(self, group_id: str) -> BrokerAddress:
        """Request the group's coordinator from any broker.

        Its address counts as that of the broker from then on.

        Raises:
            TransportError: no broker responded.
            BrokerError: the response is an error.

        Source: KIP-699 for the form with several keys.
        """
        found = await self.request_from_any(
            "find_coordinator",
            partial(_coordinator_fields, group_id),
            partial(responses.coordinator, group_id),
        )
        if self._brokers:  # before, the next request goes to the bootstrap server that is connected
            last = self._brokers.get(found.node_id, found)
            self._know({**self._brokers, found.node_id: attrs.evolve(found, rack=last.rack)})
        return found

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        *,
        isolation_level: IsolationLevel | None = None,
        use_cached: bool = False,
    ) -> Mapping[TopicPartition, int | BrokerError | TransportError]:
        """Request offsets, at a timestamp, `EARLIEST` or `LATEST`, from the partitions' leaders.

        All leaders get their requests at the same time. The result of a partition without a known
        leader is LEADER_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, or the error with which
        Metadata refuses its topic; that of a leader that did not respond, that refused the
        connection, or that has no version in common with kgroup, is the error of that.

        Args:
            partitions: the partitions.
            timestamp: milliseconds, or `EARLIEST`, or `LATEST`.
            isolation_level: whether `LATEST` is the last stable offset; by default the group's.
            use_cached: send to the leaders of the last Metadata response, for frequent callers.
                Leaders that are not known, or whose last response says that the leader has changed
                (``Reaction.find``), are looked up first.

        Raises:
            TransportError | BrokerError: as for `metadata`, with which leaders are looked up.

        Cancellation: requests that were sent break their connections; nothing else changes.
        """
        found = await self.list_offsets_with_epochs(
            partitions, timestamp, isolation_level=isolation_level, use_cached=use_cached
        )
        return {
            name: one.offset if isinstance(one, EpochEnd) else one for name, one in found.items()
        }

    async def list_offsets_with_epochs(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        *,
        isolation_level: IsolationLevel | None = None,
        use_cached: bool = False,
    ) -> Mapping[TopicPartition, EpochEnd | BrokerError | TransportError]:
        """As `list_offsets`; each offset comes with the leader epoch there.

        With `LATEST` it is that under which the end was found, which may be later than that of the
        record before it. It is -1 if the broker sends none.
        """
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        looked_up = await self._look_up(self._without_leader(partitions, use_cached=use_cached))
        level = self._config.isolation_level if isolation_level is None else isolation_level
        return await self._request_from_leaders(
            Request.LIST_OFFSETS,
            partitions,
            looked_up,
            lambda leader, theirs: self._request_offsets(leader, theirs, timestamp, level),
        )

    async def epoch_ends(
        self,
        epochs: Mapping[TopicPartition, int],
        found: dict[TopicPartition, EpochEnd | None],
        *,
        use_cached: bool = False,
        up_to_date: Collection[str] = (),
    ) -> Mapping[TopicPartition, BrokerError | TransportError]:
        """Request where the records of past leader epochs end, from the partitions' leaders.

        Under one epoch a leader cuts nothing off its log. So the request leaves out partitions that
        are known to have the given epoch now, and those of a broker that sends no epochs. If it is
        only known that a partition had that epoch, the request is sent, and fails if the epoch has
        changed. It also fails if the given epoch is later than the leader's: then the broker is not
        the leader any more, or the topic was created again.

        Args:
            epochs: for each partition a leader epoch.
            found: gets, as each leader answers, for each of its partitions that has a later epoch
                now where the given one ends, or None if its log does not know that epoch.
            use_cached: as for `list_offsets`.
            up_to_date: the topics whose cached leader epochs are those of now.

        Returns:
            the failures, each by its partition, as for `list_offsets`. A leader that lacks the
            request has no answer and no failure.

        Raises:
            TransportError | BrokerError: as for `metadata`, with which leaders are looked up.

        Cancellation: requests that were sent break their connections; what was found is kept.

        Source: KIP-320.
        """
        if not epochs:
            await trio.lowlevel.checkpoint()
            return {}
        unknown = self._without_leader(epochs, use_cached=use_cached)
        looked_up = await self._look_up(unknown)
        current = {*up_to_date, *(name.topic for name in unknown)}
        latest: dict[TopicPartition, int] = {}
        for name, epoch in epochs.items():
            known = self._leaders.epoch_of(name)
            if known is not None and not (known == epoch and name.topic in current):
                latest[name] = max(known, epoch)

        async def send(
            leader: BrokerAddress, theirs: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, EpochEnd | BrokerError | None]:
            try:
                answers = await self._request_epoch_ends(
                    leader, {name: (epochs[name], latest[name]) for name in theirs}
                )
            except UnsupportedVersionError:
                return {}
            found.update(
                (name, answer)
                for name, answer in answers.items()
                # Of the present epoch, where the log ends now says nothing.
                if not isinstance(answer, BrokerError) and latest[name] > epochs[name]
            )
            return answers

        results = await self._request_from_leaders(Request.EPOCH_ENDS, latest, looked_up, send)
        return {
            name: answer
            for name, answer in results.items()
            if isinstance(answer, BrokerError | TransportError)
        }

    def forget_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the cached leaders of partitions, because they do not answer."""
        self._leaders.forget(partitions)

    def forget_other_topics(self, topics: Collection[str]) -> None:
        """Forget what is cached of all topics but these."""
        self._leaders.forget_others(topics)

    async def request_from_any(
        self,
        api: str,
        fields: Callable[[int], Mapping[str, Any]],
        read: Callable[[Any], T],
    ) -> T:
        """Send a request to one broker after the other, until one responds or time is up.

        Args:
            api: kio's name of the request.
            fields: returns the fields for a version.
            read: as for `BrokerConnection.request_value`; if it finds a response invalid, the
                next broker is tried.

        Raises:
            TransportError: no broker responded. It names what failed at each one, and is of the
                class of the last one's error, which decides what the error policy does.
            UnsupportedVersionError: no broker responded, and the last one has no version in
                common with kgroup.
            AuthenticationError: no broker responded, and what was refused by one of them, or by the
                client, is probably refused everywhere (`_decisive`).
            BrokerError: `read` raised it.
        """
        longest = self._config.request_timeout
        deadline = trio.current_time() + PATIENCE * longest
        failures: list[_Failure] = []
        others = math.inf
        for host, port in self._addresses():
            left = deadline - trio.current_time()
            if failures and isinstance(failures[-1], RequestTimeoutError) and left <= 0:
                break
            try:
                answer = await self._connection(host, port).request_value(
                    read,
                    api,
                    fields,
                    timeout=min(longest, max(left, 0.0)),
                    login_again=others == math.inf,
                )
            except (TransportError, UnsupportedVersionError, AuthenticationError) as error:
                failures.append(error)
                self._failed[host, port] = next(self._failures)
                if isinstance(error, AuthenticationError):
                    others = min(others - 1, others_to_ask(error))
                if others <= 0:
                    break
            except BrokerError:
                self._answered.set()
                raise
            else:
                self._failed.pop((host, port), None)
                self._answered.set()
                return answer
        decisive = _decisive(failures, worked=self._answered.is_set())
        if len(failures) == 1:
            raise decisive
        raise _together(failures, decisive) from decisive

    async def aclose(self) -> None:
        """Close every connection.

        Cancellation: the connections are closed all the same.
        """
        connections, self._connections = list(self._connections.values()), {}
        await _close(connections)

    def _shared_polls(self, interval: float) -> MetadataPolls:
        config = self._config
        return polls_of(
            (self._open_stream, config.bootstrap_servers, config.client_id, config.security),
            interval,
        )

    async def _take_in(
        self, answer: Any, wanted: frozenset[str] | None, foreign: frozenset[str]
    ) -> Metadata:
        """Keep the brokers and leaders of a Metadata response, and return what it says."""
        self._check_error(int(getattr(answer, "error_code", 0)))
        unused = self._replace_brokers(answer)
        racks = {node: broker.rack for node, broker in self._brokers.items() if broker.rack}
        metadata = read_metadata(answer, wanted, foreign, racks)
        self._leaders.replace(
            None if wanted is None else metadata.topics.keys() | metadata.missing,
            metadata.leaders,
            metadata.leader_epochs,
        )
        ids = {name: one.topic_id for name, one in metadata.topics.items() if one.topic_id}
        before = {} if wanted is None else self.topic_ids
        kept = {name: one for name, one in before.items() if name not in metadata.missing}
        self.topic_ids = {**kept, **ids}
        await _close(unused)
        return metadata

    async def _request_metadata(self, topics: frozenset[str] | None) -> Any:
        return await self.request_from_any(
            "metadata",
            partial(metadata_fields, topics),
            partial(_checked_metadata, wanted=topics),
        )

    def cached_partitions(self, topic: str) -> int:
        """How many partitions of a topic have a cached leader."""
        return self._leaders.count(topic)

    def _without_leader(
        self, partitions: Collection[TopicPartition], *, use_cached: bool
    ) -> Collection[TopicPartition]:
        """The partitions whose leaders have to be looked up."""
        return [name for name in partitions if not (use_cached and self._leader(name))]

    def by_leader(self, partitions: Collection[TopicPartition]) -> list[list[TopicPartition]]:
        """Partitions in groups that have the same cached leader, or none."""
        groups: dict[BrokerAddress | None, list[TopicPartition]] = {}
        for name in sorted(partitions):
            groups.setdefault(self._leader(name), []).append(name)
        return list(groups.values())

    async def _look_up(self, partitions: Collection[TopicPartition]) -> Metadata:
        """Request the leaders of partitions; of a topic that has none, the result says why."""
        if not partitions:
            return Metadata(topics={}, leaders={})
        topics = {name.topic for name in partitions}
        return await self.metadata(topics, foreign=topics)

    async def _request_from_leaders(
        self,
        request: Request,
        partitions: Collection[TopicPartition],
        looked_up: Metadata,
        send: Callable[
            [BrokerAddress, Sequence[TopicPartition]],
            Awaitable[Mapping[TopicPartition, T | BrokerError]],
        ],
    ) -> Mapping[TopicPartition, T | BrokerError | TransportError]:
        """Send a request to the known leaders of partitions, and forget those that it finds wrong.

        Args:
            request: the request.
            partitions: the partitions.
            looked_up: what a look-up of leaders that were not known has found.
            send: sends a leader the request about its partitions.
        """
        found: dict[TopicPartition, T | BrokerError | TransportError] = {}
        by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
        for wanted in sorted(partitions):
            leader = self._leader(wanted)
            if leader is not None:
                by_leader.setdefault(leader, []).append(wanted)
            elif (error := looked_up.refused.get(wanted.topic)) is not None:
                found[wanted] = error
            else:
                missing = wanted.topic in looked_up.missing
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if missing
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
                found[wanted] = broker_error(request, code, str(wanted))
        results = await request_all(
            [partial(send, leader, theirs) for leader, theirs in by_leader.items()]
        )
        for theirs, result in zip(by_leader.values(), results, strict=True):
            found.update(
                dict.fromkeys(theirs, result)
                if isinstance(result, TransportError | BrokerError)
                else result
            )
        self._leaders.forget_failed(request, found)
        return found

    async def _request_epoch_ends(
        self, leader: BrokerAddress, epochs: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, EpochEnd | BrokerError | None]:
        """Request the ends of epochs from a leader.

        Args:
            leader: the leader.
            epochs: for each partition the epoch, and the latest one that is known. By that a broker
                that is no longer the leader, or not yet, recognises the request.
        """
        fields = {
            "replica_id": _NOT_A_REPLICA,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": number,
                            "leader_epoch": epochs[TopicPartition(topic, number)][0],
                            "current_leader_epoch": epochs[TopicPartition(topic, number)][1],
                        }
                        for number in numbers
                    ],
                }
                for topic, numbers in by_topic(epochs).items()
            ],
        }
        found = await self._connection(leader.host, leader.port).request_value(
            partial(responses.epoch_ends, wanted=epochs),
            "offset_for_leader_epoch",
            lambda _: fields,
            timeout=self._config.request_timeout,
        )
        return {
            name: broker_error(Request.EPOCH_ENDS, code, str(name)) if code else end
            for name, (code, end) in found.items()
        }

    async def _request_offsets(
        self,
        leader: BrokerAddress,
        partitions: Collection[TopicPartition],
        timestamp: int,
        isolation_level: IsolationLevel,
    ) -> Mapping[TopicPartition, EpochEnd | BrokerError]:
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
        found = await self._connection(leader.host, leader.port).request_value(
            partial(responses.listed_offsets, wanted=partitions, may_be_missing=timestamp >= 0),
            "list_offsets",
            lambda version: _list_offsets_fields(fields, version, self._config.request_timeout),
            timeout=self._config.request_timeout,
        )
        return {
            name: broker_error(Request.LIST_OFFSETS, code, str(name)) if code else offset
            for name, (code, offset) in found.items()
        }

    def _check_error(self, code: int) -> None:
        """Raise the error of the whole response, which then lists no topics."""
        if not code:
            return
        reaction = reaction_to_code(Request.METADATA, code)
        if reaction.find:
            self._brokers = {}
        if reaction.action is not Action.IGNORE:
            raise broker_error(Request.METADATA, code)

    def _replace_brokers(self, answer: Any) -> list[BrokerConnection]:
        """Replace the known brokers; return the connections to addresses that none has now."""
        brokers = {
            int(item.node_id): BrokerAddress(
                int(item.node_id), item.host, int(item.port), item.rack
            )
            for item in answer.brokers
        }
        # A starting broker may list no brokers; then the known ones are better than none.
        if not brokers:
            return []
        self._know(brokers)
        if self._suspected.is_set():
            self._suspected = trio.Event()
        known = {*self._bootstrap, *((item.host, item.port) for item in brokers.values())}
        self._failed = {one: when for one, when in self._failed.items() if one in known}
        return [self._connections.pop(address) for address in self._connections.keys() - known]

    def _know(self, brokers: dict[int, BrokerAddress]) -> None:
        self._brokers = brokers
        named = (join_address(one.host, one.port) for one in brokers.values())
        self.known_addresses = frozenset((*self._config.bootstrap_servers, *named))

    def _leader(self, partition: TopicPartition) -> BrokerAddress | None:
        """The leader's address, if both the leader and its address are known."""
        node = self._leaders.of(partition)
        return None if node is None else self._brokers.get(node)

    def _addresses(self) -> list[tuple[str, int]]:
        """The addresses to try: bootstrap servers and other known brokers by turns.

        A broker's list of the others may be wrong, and bootstrap servers may be gone. So neither
        kind waits until all of the other have been tried, in one request or in several. Of each
        kind, those come first that responded last time, because one that cannot be reached costs a
        whole ``request_timeout``; then the one whose failure is longest ago. Of equal ones the
        known brokers are the first, in random order: those with a connection, then the others, and
        last those that have not yet answered another request, because they may be frozen.
        """
        known = [(broker.host, broker.port) for broker in self._brokers.values()]
        rank = {
            one: (self._failed.get(one, 0), False, self._wait_at(one), tie)
            for one, tie in [(one, self._random.random()) for one in known]
        }
        for tie, one in enumerate(self._bootstrap):
            rank.setdefault(one, (self._failed.get(one, 0), True, 0, float(tie)))
        order = sorted(rank, key=rank.__getitem__)
        kinds = [
            [one for one in order if one not in self._bootstrap],
            [one for one in order if one in self._bootstrap],
        ]
        if order[0] in self._connections and order[0] not in self._failed:
            kinds.sort(key=lambda kind: order[0] not in kind)
        else:
            kinds.sort(key=lambda kind: max((self._failed.get(one, 0) for one in kind), default=0))
        return [one for pair in zip_longest(*kinds) for one in pair if one is not None]

    def _wait_at(self, address: tuple[str, int]) -> int:
        """What a request waits for at an address: 0 nothing, 1 a connection, 2 another request."""
        connection = self._connections.get(address)
        if connection is None:
            return 1
        return 2 if connection.occupied else 0

    def _connection(self, host: str, port: int) -> BrokerConnection:
        if (host, port) not in self._connections:
            self._connections[host, port] = self.new_connection(host, port)
        return self._connections[host, port]


def _decisive(failures: Sequence[_Failure], *, worked: bool) -> _Failure:
    """The failure whose class counts for all of them; there is at least one.

    A refused connection does if all were refused. It also does if no broker has answered before, or
    if the broker's reason may be a wrong password, which must not be sent again and again.
    Otherwise the brokers that were not reached may answer later, as they did before.

    Args:
        failures: what failed at each address.
        worked: whether any broker has answered before.
    """
    refused = [error for error in failures if isinstance(error, AuthenticationError)]
    final = [error for error in refused if others_to_ask(error) < math.inf]
    rest = [error for error in failures if not isinstance(error, AuthenticationError)]
    if final:
        return final[-1]
    return rest[-1] if rest and (worked or not refused) else refused[-1]


def _together(failures: Sequence[_Failure], decisive: _Failure) -> _Failure:
    """What failed at each broker, as one error of the decisive one's class, each hint once."""
    transport = [error for error in failures if isinstance(error, TransportError)]
    hint = ". ".join(dict.fromkeys(error.hint for error in transport if error.hint))
    texts = dict.fromkeys(
        error.failure if isinstance(error, TransportError) else str(error) for error in failures
    )
    text = f"no broker responded: {short_list(texts, between='; ', most=_MOST_NAMED)}"
    if isinstance(decisive, TransportError):
        return type(decisive)(text, sent=decisive.sent, hint=hint)
    text = f"{text}. {hint}" if hint else text
    if isinstance(decisive, AuthenticationError):
        return AuthenticationError(decisive.code, decisive.name, decisive.request, text)
    return UnsupportedVersionError(text, decisive.request)


async def _close(connections: Iterable[BrokerConnection]) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
        for connection in connections:
            await connection.aclose()
    await trio.lowlevel.checkpoint()


def _checked_metadata(answer: Any, wanted: frozenset[str] | None) -> Any:
    if not getattr(answer, "error_code", 0):
        responses.check_metadata(answer, wanted)
    return answer


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
