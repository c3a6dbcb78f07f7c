"""The embedded broker: a cluster's state behind TCP or memory streams, and a door for tests.

``serve`` listens on a real port, ``in_memory`` on none: there, nothing but trio's clock is
used, so that a MockClock governs everything. What requests mean is said below this module;
here are the broker's life, its connections, and what a test does to it.

It keeps nothing on disk: when the context ends, everything is gone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, final

import trio

from kgroup.broker.admin import BrokerAdmin
from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.control import BrokerControl
from kgroup.broker.endpoint import Endpoint, refused_connection
from kgroup.broker.lifespan import (
    check_listener,
    random_or_default,
    read_settings,
    running,
    virtual_wall_clock,
)
from kgroup.interfaces import Random

MEMORY_HOST: Final = "memory"
MEMORY_PORT: Final = 9092


@final
class EmbeddedBroker(BrokerControl, BrokerAdmin):
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
        self._endpoint = Endpoint(self.cluster, node, nursery, address, in_memory=listen_on is None)

    def __repr__(self) -> str:
        state = "up" if self._endpoint.is_listening else "down"
        return f"<kgroup.broker.Broker at {self.bootstrap_servers}, {state}>"

    # Where it is.

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


@asynccontextmanager
async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedBroker]:
    """Run a broker on a TCP port for as long as the context lasts. Nothing is kept on disk.

    Args:
        host: the address to listen on, and to tell to clients.
        port: the port; 0 takes a free one.
        settings: ``BrokerSettings``, or Kafka's property names with their values.
        random: makes every id; by default ids differ from run to run.

    Raises:
        OSError: the address cannot be listened on.
        ConfigError: a property is unknown or its value refused; no host, or no port.

    Cancellation: connections are closed at once.
    """
    made = read_settings(settings)
    check_listener(host, port)
    async with running(
        lambda nursery: EmbeddedBroker(
            made, random_or_default(random), time.time, nursery, (host, port)
        )
    ) as broker:
        yield broker


@asynccontextmanager
async def in_memory(
    settings: BrokerSettings | Mapping[str, object] | None = None,
    *,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedBroker]:
    """Run a broker without any socket; ``EmbeddedBroker.open_stream`` connects to it.

    Time stamps count from a fixed day by trio's clock: under a MockClock, and with a seeded
    ``random``, everything it does is the same from run to run.

    Raises:
        ConfigError: a property is unknown or its value refused.
    """
    made, clock = read_settings(settings), virtual_wall_clock()
    async with running(
        lambda nursery: EmbeddedBroker(made, random_or_default(random), clock, nursery, None)
    ) as broker:
        yield broker
