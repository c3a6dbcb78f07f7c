"""How long an embedded broker, or a cluster of them, runs: as long as a context lasts."""

from __future__ import annotations

import random as random_module
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

import trio

from kgroup.addresses import HIGHEST_PORT, host_fault, port_fault
from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.cluster_state import ClusterState
from kgroup.errors import ConfigError
from kgroup.interfaces import Random

_EPOCH_OF_VIRTUAL_TIME: Final = 1_600_000_000.0
"""What a broker in memory takes trio's time 0 for, in seconds since 1970; any fixed time does."""


class Runnable(Protocol):
    """What can be run."""

    @property
    def cluster(self) -> ClusterState:
        """The state behind it."""
        ...

    async def start(self) -> None:
        """Listen."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


Kind = TypeVar("Kind", bound=Runnable)


@asynccontextmanager
async def running(make: Callable[[trio.Nursery], Kind]) -> AsyncIterator[Kind]:
    """Make it, start it, and end it with the context.

    Raises:
        OSError: an address cannot be listened on.

    Cancellation: connections are closed at once.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        made = make(nursery)
        made.cluster.start_alarms(nursery)
        try:
            await made.start()
            yield made
        # What the caller's body raises is raised again below: it is not the nursery's to wrap.
        except BaseException as error:  # noqa: BLE001
            failure = error
        made.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def check_listener(host: str, port: int, brokers: int = 1) -> None:
    """Whether brokers can listen there, the first on this port and each other on the next.

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
    """Settings as a caller gives them.

    Raises:
        ConfigError: a property is unknown or its value refused.
    """
    if given is None:
        return BrokerSettings()
    if not isinstance(given, BrokerSettings | Mapping):
        raise ConfigError("settings", given, "it must be BrokerSettings, or names with values")
    return given if isinstance(given, BrokerSettings) else BrokerSettings.from_properties(given)


def random_or_default(given: Random | None) -> Random:
    """The source of every choice; by default another one each time."""
    return given or random_module.Random()


def virtual_wall_clock() -> Callable[[], float]:
    """Seconds since 1970 by trio's clock alone, from a fixed day on."""
    start = trio.current_time()
    return lambda: _EPOCH_OF_VIRTUAL_TIME + trio.current_time() - start
