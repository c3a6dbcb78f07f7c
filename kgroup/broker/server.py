"""The embedded broker: a cluster's state behind TCP or memory streams, and a door for tests.

``serve`` listens on a real port, ``in_memory`` on none: there, nothing but trio's clock is
used, so that a MockClock governs everything. What requests mean is said below this module;
here are the broker's life, its connections, and what a test does to it.

It keeps nothing on disk: when the context ends, everything is gone.
"""

from __future__ import annotations

import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, final

import trio

from kgroup.broker.door import Door
from kgroup.broker.endpoint import Endpoint, refused_connection
from kgroup.broker.faults import Fault, Match
from kgroup.broker.settings import BrokerSettings
from kgroup.protocols import Random

MEMORY_HOST: Final = "memory"
MEMORY_PORT: Final = 9092
_EPOCH_OF_VIRTUAL_TIME: Final = 1_600_000_000.0
"""What a broker in memory takes trio's time 0 for, in seconds since 1970; any fixed time does."""


@final
class Broker(Door):
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
        super().__init__(settings, random, wall_clock)
        (node,) = self.cluster.brokers.values()
        address = (MEMORY_HOST, MEMORY_PORT) if listen_on is None else listen_on
        self._endpoint = Endpoint(
            self.cluster, node, nursery, address, in_memory=listen_on is None
        )

    def __repr__(self) -> str:
        state = "up" if self._endpoint.is_listening else "down"
        return f"<kgroup.broker.Broker at {self.bootstrap_servers}, {state}>"

    # Where it is.

    @property
    def host(self) -> str:
        """The host that clients are told."""
        return self._endpoint.host

    @property
    def port(self) -> int:
        """The port that clients are told."""
        return self._endpoint.port

    @property
    def bootstrap_servers(self) -> str:
        """What a client's ``bootstrap.servers`` takes."""
        return self._endpoint.bootstrap_server

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection in memory; a ``StreamOpener``.

        Raises:
            OSError: the broker is stopped, or has another address.

        Cancellation: nothing is left open.
        """
        if (host, port) != (self.host, self.port):
            await trio.lowlevel.checkpoint()
            raise refused_connection(host, port)
        return await self._endpoint.connect()

    def accept(self, stream: trio.abc.Stream, client_host: str) -> None:
        """Serve a connection that somebody else has made, a network in memory for one.

        Args:
            stream: the broker's end; it is closed when the connection ends.
            client_host: where the client is said to come from.

        Raises:
            OSError: the broker is stopped.
        """
        self._endpoint.accept(stream, client_host)

    # Groups.

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
        shards = self.cluster.shards
        await shards.load_after(shards.restart(), away=away, loading=loading)

    # Life and faults.

    async def start(self) -> None:
        """Listen; after ``stop`` on the same port, with all state as it was.

        Raises:
            OSError: the address cannot be listened on.
        """
        await self._endpoint.open()

    async def stop(self) -> None:
        """Listen no more and cut every connection. Topics, groups and their timers go on."""
        self.close()
        self.cut_connections()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Listen no more; connections stay."""
        self._endpoint.close()

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close connections now, all or those of one client; how many.

        A request that waits on one has been handled: a member whose Join was parked stays in
        its group until its timers say otherwise.
        """
        return self._endpoint.cut_connections(client_id)

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
        return self._endpoint.inject(api, error_code, times, match)

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
        return self._endpoint.slow(seconds, api, times, match)

    def set_reachable(self, *, reachable: bool) -> None:
        """While not reachable, connections stay open but no request is read and none answered."""
        self._endpoint.set_reachable(reachable=reachable)


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
        broker.cluster.start_alarms(nursery)
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


