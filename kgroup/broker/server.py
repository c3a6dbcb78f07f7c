"""Context managers that run embedded brokers; a broker ends with its context.

``serve`` and ``serve_cluster`` listen on real ports. ``in_memory`` and ``in_memory_cluster`` open
no port and use only trio's clock, so that a MockClock controls all their time. Nothing is kept on
disk: the records, offsets and groups are gone when the context ends.
"""

from __future__ import annotations

import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import trio

from kgroup import bounds
from kgroup.addresses import HIGHEST_PORT, host_fault, port_fault
from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.embedded_broker import EmbeddedBroker
from kgroup.broker.embedded_cluster import EmbeddedCluster
from kgroup.broker.security.settings import BrokerSecurity
from kgroup.errors import ConfigError, UsageError
from kgroup.interfaces import Random
from kgroup.running_loop import running_library

MEMORY_HOST: Final = "memory"
MEMORY_PORT: Final = 9092
_EPOCH_OF_VIRTUAL_TIME: Final = 1_600_000_000.0
"""Trio's time 0 for a broker in memory, in seconds since 1970; any fixed time does."""


@asynccontextmanager
async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    security: BrokerSecurity | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedBroker]:
    """Run a broker on a TCP port for as long as the context lasts. Nothing is kept on disk.

    Args:
        host: the address to listen on, which clients connect to.
        port: the port; 0 takes a free one.
        settings: ``BrokerSettings``, or Kafka's property names with their values.
        security: users and encryption; by default there is neither.
        random: the source of all ids; by default ids differ from run to run.

    Raises:
        OSError: the address cannot be listened on.
        ConfigError: a property is unknown, its value is refused, the host or port is not valid, or
            a certificate cannot be read or made.

    Cancellation: connections are closed at once.
    """
    running = serve_cluster(1, host, port, settings=settings, security=security, random=random)
    async with running as cluster:
        (broker,) = cluster.nodes.values()
        yield broker


@asynccontextmanager
async def in_memory(
    settings: BrokerSettings | Mapping[str, object] | None = None,
    *,
    security: BrokerSecurity | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedBroker]:
    """Run a broker without any socket; ``EmbeddedBroker.open_stream`` connects to it.

    Time stamps count from a fixed day by trio's clock: under a MockClock, and with a seeded
    ``random``, everything it does is the same from run to run.

    Raises:
        ConfigError: a property is unknown, or its value is refused.
    """
    address = (MEMORY_HOST, MEMORY_PORT)
    running = _in_memory([address], read_settings(settings), security, random)
    async with running as cluster:
        (broker,) = cluster.nodes.values()
        yield broker


@asynccontextmanager
async def serve_cluster(
    brokers: int = 3,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    security: BrokerSecurity | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster on TCP ports for as long as the context lasts. Nothing is kept on disk.

    Args:
        brokers: how many. Their ids count from ``node.id``.
        host: the address to listen on, which clients connect to.
        port: the first broker's port, the others have the following; 0 takes free ones.
        settings: ``BrokerSettings``, or Kafka's property names with their values, for all.
            ``default.replication.factor`` is 1 as in Kafka: then a partition has no leader while
            its broker is stopped.
        security: users and encryption; by default there is neither.
        random: the source of all ids; by default ids differ from run to run.

    Raises:
        OSError: an address cannot be listened on.
        ConfigError: a property is unknown or its value refused; too few or too many brokers; no
            host, or no port for every broker.

    Cancellation: connections are closed at once.
    """
    _check_event_loop()
    broker_settings = read_settings(settings)
    broker_settings.check_brokers(brokers)
    check_listener(host, port, brokers)
    addresses = [(host, port + number if port else 0) for number in range(brokers)]
    running = _running(broker_settings, security, random, time.time, addresses, in_memory=False)
    async with running as cluster:
        yield cluster


@asynccontextmanager
async def in_memory_cluster(
    brokers: int = 3,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    *,
    security: BrokerSecurity | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster without any socket; ``EmbeddedCluster.open_stream`` connects to it.

    Broker n is at ``broker-n:9092``. Under a MockClock, and with a seeded ``random``, everything
    it does is the same from run to run; see ``in_memory``.

    Raises:
        ConfigError: a property is unknown or its value refused; too few or too many brokers.
    """
    broker_settings = read_settings(settings)
    broker_settings.check_brokers(brokers)
    first = broker_settings.node_id
    addresses = [(f"broker-{node_id}", MEMORY_PORT) for node_id in range(first, first + brokers)]
    async with _in_memory(addresses, broker_settings, security, random) as cluster:
        yield cluster


def check_listener(host: str, port: int, brokers: int = 1) -> None:
    """Check that brokers can listen there, the first on this port and each other on the next.

    Raises:
        ConfigError: the host or the port cannot be one, or there is no port left for the last.
    """
    if fault := host_fault(host):
        raise ConfigError("host", host, f"it {fault}")
    if fault := port_fault(port, least=0):
        raise ConfigError("port", port, f"it {fault}")
    if port and port + brokers - 1 > HIGHEST_PORT:
        raise ConfigError(
            "port",
            port,
            f"it leaves no room for {brokers} brokers, each of which has the next port: it must be"
            f" at most {HIGHEST_PORT - brokers + 1}",
        )


def read_settings(given: BrokerSettings | Mapping[str, object] | None) -> BrokerSettings:
    """Settings from what a caller gives.

    Raises:
        ConfigError: a property is unknown, or its value is refused.
    """
    if given is None:
        return BrokerSettings()
    if not isinstance(given, BrokerSettings | Mapping):
        raise ConfigError("settings", given, "it must be BrokerSettings, or names with values")
    return given if isinstance(given, BrokerSettings) else BrokerSettings.from_properties(given)


def _in_memory(
    addresses: Sequence[tuple[str, int]],
    settings: BrokerSettings,
    security: BrokerSecurity | None,
    random: Random | None,
) -> AbstractAsyncContextManager[EmbeddedCluster]:
    _check_event_loop()
    start = trio.current_time()
    return _running(
        settings,
        security,
        random,
        lambda: _EPOCH_OF_VIRTUAL_TIME + trio.current_time() - start,
        addresses,
        in_memory=True,
    )


def _check_event_loop() -> None:
    """Refuse another event loop than trio's.

    Raises:
        UsageError: trio does not run here.
    """
    if running_library() != "trio":
        raise UsageError(
            "the embedded broker runs in trio's event loop, which does not run here; in a program"
            " on asyncio or without an event loop, use kgroup.testing.embedded.EmbeddedKafka, or in"
            " pytest the fixture embedded_kafka"
        )


@asynccontextmanager
async def _running(
    settings: BrokerSettings,
    security: BrokerSecurity | None,
    random: Random | None,
    wall_clock: Callable[[], float],
    addresses: Sequence[tuple[str, int]],
    *,
    in_memory: bool,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster with a broker for each address until the context ends.

    The cluster's tasks (listeners, connections, timers) run in a nursery of its own, which is
    cancelled when the body is done. What the body raises is kept and raised again outside, because
    a nursery would wrap the caller's error in an exception group.
    """
    if security is not None:
        bounds.instance(BrokerSecurity, "a BrokerSecurity").check("security", security)
    source = random or random_module.Random()
    hosts = [host for host, _ in addresses]
    state = ClusterState(settings, source, wall_clock, len(addresses), security, hosts)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        cluster = EmbeddedCluster(state, nursery, addresses, in_memory=in_memory)
        state.start_alarms(nursery)
        try:
            await cluster.start()
            yield cluster
        except BaseException as error:  # noqa: BLE001
            failure = error
        cluster.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
