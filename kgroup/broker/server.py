"""The embedded broker: a cluster's state behind TCP or memory streams, and a door for tests.

``serve`` listens on a real port, ``in_memory`` on none: there, nothing but trio's clock is
used, so that a MockClock governs everything. What requests mean is said below this module;
here are the broker's life, its connections, and what a test does to it.

It keeps nothing on disk: when the context ends, everything is gone.
"""

from __future__ import annotations

import errno
import os
import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, final

import trio

from kgroup.broker import batches
from kgroup.broker.cluster import Cluster
from kgroup.broker.connection import Connection
from kgroup.broker.faults import Fault, Faults, Match
from kgroup.broker.groups import answers, requests
from kgroup.broker.groups.answers import DescribedGroup
from kgroup.broker.reader import LogReader
from kgroup.broker.records import NewRecord, batch_of
from kgroup.broker.refusal import RefusedError
from kgroup.broker.settings import BrokerSettings
from kgroup.broker.topics import UNSET
from kgroup.errors import UsageError
from kgroup.model import OffsetAndMetadata, TopicPartition
from kgroup.protocols import Random

MEMORY_HOST: Final = "memory"
MEMORY_PORT: Final = 9092
_EPOCH_OF_VIRTUAL_TIME: Final = 1_600_000_000.0
"""What a broker in memory takes trio's time 0 for, in seconds since 1970; any fixed time does."""
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # to recognise it
"""Addresses to listen on that nobody can connect to -> what clients are told instead."""


@final
class Broker:
    """A running embedded broker; ``serve`` and ``in_memory`` make one.

    Attributes:
        log: reads records, for tests and in-memory consumers.
        cluster: the state behind it.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        random: Random,
        wall_clock: Callable[[], float],
        nursery: trio.Nursery,
        listen_on: tuple[str, int] | None,
    ) -> None:
        self.cluster: Final = Cluster(settings, random, wall_clock)
        self.log: Final = LogReader(self.cluster.topics)
        self._nursery = nursery
        self._faults = Faults()
        self._connections: dict[Connection, None] = {}
        self._listen_on = listen_on
        self._listening: trio.CancelScope | None = None
        self._listeners: list[trio.SocketListener] = []

    def __repr__(self) -> str:
        state = "up" if self._listening is not None else "down"
        return f"<kgroup.broker.Broker at {self.bootstrap_servers}, {state}>"

    # Where it is.

    @property
    def host(self) -> str:
        """The host that clients are told."""
        return self.cluster.controller.host

    @property
    def port(self) -> int:
        """The port that clients are told."""
        return self.cluster.controller.port

    @property
    def bootstrap_servers(self) -> str:
        """What a client's ``bootstrap.servers`` takes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection in memory; a ``StreamOpener``.

        Raises:
            OSError: the broker is stopped, or has another address.

        Cancellation: nothing is left open.
        """
        await trio.lowlevel.checkpoint()
        await self._faults.reachable()
        if self._listening is None or (host, port) != (self.host, self.port):
            code = errno.ECONNREFUSED
            raise ConnectionRefusedError(code, f"{os.strerror(code)}: {host}:{port}")
        # Testing helpers of trio's are no part of a broker that serves sockets.
        from trio.testing import memory_stream_pair

        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve_stream, ours, MEMORY_HOST)
        return theirs

    # Topics and records.

    async def create_topic(
        self, name: str, partitions: int = UNSET, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; without a number of partitions it has ``num.partitions``.

        Raises:
            UsageError: Kafka would refuse it; the text says why.
        """
        await trio.lowlevel.checkpoint()
        with _refused():
            self.cluster.topics.create(name, partitions, configs=configs)

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have this many partitions in all.

        Raises:
            UsageError: there is no such topic, or it has as many already.
        """
        await trio.lowlevel.checkpoint()
        with _refused():
            self.cluster.topics.grow(name, partitions)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and what groups have committed of it.

        Raises:
            UsageError: there is no such topic.
        """
        await trio.lowlevel.checkpoint()
        topic = self.cluster.topics.get(name)
        if topic is None:
            raise UsageError(f"the embedded broker has no topic {name!r}")
        with _refused():
            self.cluster.delete_topic(topic)

    async def append(self, topic: str, partition: int, records: Sequence[bytes | NewRecord]) -> int:
        """Write records as one batch, without a producer; the offset of the first.

        Args:
            topic: an existing topic.
            partition: one of its partitions.
            records: values, or ``NewRecord`` for keys, headers, time stamps, tombstones.

        Raises:
            UsageError: there is no such partition, or the batch is too large.
            ValueError: there is no record.
        """
        await trio.lowlevel.checkpoint()
        now = self.cluster.now_ms()
        made = [one if isinstance(one, NewRecord) else NewRecord(one) for one in records]
        header, data = batches.check(batch_of(made, now))
        with _refused():
            log = self.cluster.topics.log(topic, partition)
            return log.append(data, header, now).base_offset

    # Groups.

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed; empty for an unknown group."""
        await trio.lowlevel.checkpoint()
        request = requests.OffsetFetch(
            version=9, groups=(requests.OffsetFetchGroup(group_id=group_id),), require_stable=False
        )
        answer = await self.cluster.groups.ask(request, answers.OffsetsFetched)
        return {
            TopicPartition(one.topic, one.partition): OffsetAndMetadata(
                one.offset, one.leader_epoch, one.metadata
            )
            for one in answer.groups[0].partitions
        }

    async def groups(self) -> tuple[DescribedGroup, ...]:
        """Every group with its state and members, by group id."""
        await trio.lowlevel.checkpoint()
        desk = self.cluster.groups
        listed = await desk.ask(requests.ListGroups(), answers.GroupsListed)
        names = tuple(sorted(group.group_id for group in listed.groups))
        wanted = requests.DescribeGroups(version=6, group_ids=names)
        return (await desk.ask(wanted, answers.GroupsDescribed)).groups

    async def restart_coordinator(self, *, away: float = 0.0, loading: float = 0.0) -> None:
        """Let the group coordinator fail over to itself.

        Everybody who waits is sent to look for the coordinator. What Kafka writes down is kept,
        what it keeps in memory only (pending member ids, an unsynced generation) is lost.

        Args:
            away: seconds in which requests are answered NOT_COORDINATOR.
            loading: seconds after that in which they are answered
                COORDINATOR_LOAD_IN_PROGRESS.

        Cancellation: the coordinator is loaded at once.
        """
        desk = self.cluster.groups
        coordinator = desk.coordinator
        shards = range(self.cluster.settings.groups.offsets_topic_partitions)
        snapshot = coordinator.snapshot()
        desk.deliver(coordinator.unload(trio.current_time()))
        try:
            await trio.sleep(away)
            coordinator.begin_loading(shards)
            await trio.sleep(loading)
        finally:
            coordinator.load(trio.current_time(), snapshot, shards)
            desk.deliver(())

    # Life and faults.

    async def start(self) -> None:
        """Listen; after ``stop`` on the same port, with all state as it was.

        Raises:
            OSError: the address cannot be listened on.
        """
        await trio.lowlevel.checkpoint()
        if self._listening is not None:
            return
        if self._listen_on is None:
            self.cluster.move(MEMORY_HOST, MEMORY_PORT)
            self._listening = trio.CancelScope()
            return
        host, port = self._listen_on
        self._listeners = await _open_listeners(host, port)
        port = self._listeners[0].socket.getsockname()[1]
        self._listen_on = (host, port)
        self.cluster.move(_ANYWHERE.get(host, host), port)
        self._listening = trio.CancelScope()
        self._nursery.start_soon(self._accept, self._listening, self._listeners)

    async def stop(self) -> None:
        """Listen no more and cut every connection. Topics, groups and their timers go on."""
        self.close()
        self.cut_connections()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Listen no more; connections stay."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        for listener in self._listeners:
            listener.socket.close()
        self._listeners = []

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close connections now, all or those of one client; how many.

        A request that waits on one has been handled: a member whose Join was parked stays in
        its group until its timers say otherwise.
        """
        cut = [
            connection
            for connection in self._connections
            if client_id is None or connection.client_id == client_id
        ]
        for connection in cut:
            connection.cut()
        return len(cut)

    def inject(
        self, api: str, error_code: int, times: int | None = 1, match: Match | None = None
    ) -> Fault:
        """Answer the next requests of an API with an error instead of serving them.

        Args:
            api: kio's name, such as ``"heartbeat"``.
            error_code: Kafka's number of the error.
            times: how many requests, None for all until ``Fault.cancel``.
            match: takes kio's dataclass of the request and says whether it is meant.

        Raises:
            ValueError: there is no such API.
        """
        return self._faults.plan(api, error_code=error_code, times=times, match=match)

    def slow(
        self,
        seconds: float,
        api: str | None = None,
        times: int | None = None,
        match: Match | None = None,
    ) -> Fault:
        """Serve requests, of one API or of all, only after a while, until ``Fault.cancel``.

        Raises:
            ValueError: there is no such API.
        """
        return self._faults.plan(api, delay=seconds, times=times, match=match)

    def set_reachable(self, *, reachable: bool) -> None:
        """While not reachable, connections stay open but no request is read and none answered."""
        self._faults.set_reachable(reachable=reachable)

    async def _accept(
        self, scope: trio.CancelScope, listeners: Sequence[trio.SocketListener]
    ) -> None:
        with scope:
            await trio.serve_listeners(
                self._serve_socket, list(listeners), handler_nursery=self._nursery
            )

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        try:
            address = stream.socket.getpeername()
        except OSError:
            await trio.aclose_forcefully(stream)
            return
        await self._serve_stream(stream, str(address[0]))

    async def _serve_stream(self, stream: trio.abc.Stream, host: str) -> None:
        connection = Connection(stream, f"/{host}", self.cluster, self._faults)
        self._connections[connection] = None
        try:
            await connection.serve()
        finally:
            del self._connections[connection]


@asynccontextmanager
async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    random: Random | None = None,
) -> AsyncIterator[Broker]:
    """Run a broker on a TCP port for as long as the context lasts. Nothing is kept on disk.

    Args:
        host: the address to listen on, and to tell to clients.
        port: the port; 0 takes a free one.
        settings: ``BrokerSettings``, or Kafka's property names with their values.
        random: makes every id; by default ids differ from run to run.

    Raises:
        OSError: the address cannot be listened on.
        ConfigError: a property is unknown or its value refused.

    Cancellation: connections are closed at once.
    """
    made = _settings(settings)
    async with _running(made, random, time.time, (host, port)) as broker:
        yield broker


@asynccontextmanager
async def in_memory(
    settings: BrokerSettings | Mapping[str, object] | None = None,
    *,
    random: Random | None = None,
) -> AsyncIterator[Broker]:
    """Run a broker without any socket; ``Broker.open_stream`` connects to it.

    Time stamps count from a fixed day by trio's clock: under a MockClock, and with a seeded
    ``random``, everything it does is the same from run to run.

    Raises:
        ConfigError: a property is unknown or its value refused.
    """
    made = _settings(settings)
    start = trio.current_time()

    def wall_clock() -> float:
        return _EPOCH_OF_VIRTUAL_TIME + trio.current_time() - start

    async with _running(made, random, wall_clock, None) as broker:
        yield broker


@asynccontextmanager
async def _running(
    settings: BrokerSettings,
    random: Random | None,
    wall_clock: Callable[[], float],
    listen_on: tuple[str, int] | None,
) -> AsyncIterator[Broker]:
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        broker = Broker(settings, random or random_module.Random(), wall_clock, nursery, listen_on)
        nursery.start_soon(broker.cluster.groups.alarm.run)
        nursery.start_soon(broker.cluster.transaction_alarm.run)
        try:
            await broker.start()
            yield broker
        # What the caller's body raises is raised again below: it is not the nursery's to wrap.
        except BaseException as error:  # noqa: BLE001
            failure = error
        broker.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _settings(given: BrokerSettings | Mapping[str, object] | None) -> BrokerSettings:
    if given is None:
        return BrokerSettings()
    return given if isinstance(given, BrokerSettings) else BrokerSettings.from_properties(given)


async def _open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listeners of one port on all addresses of a host."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    if port == 0 and len(listeners) > 1:
        # Each address got a port of its own; all are to have the first one's.
        port = listeners[0].socket.getsockname()[1]
        for listener in listeners:
            await listener.aclose()
        listeners = await trio.open_tcp_listeners(port, host=host)
    return listeners


@contextmanager
def _refused() -> Iterator[None]:
    """Turn a refusal into the caller's mistake."""
    try:
        yield
    except RefusedError as error:
        raise UsageError(f"the embedded broker refuses: {error}") from error
