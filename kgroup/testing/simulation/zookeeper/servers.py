"""Puts an ensemble on the simulated network: one server on the host of each broker.

A message is one chunk of bytes, and an answer arrives after the route's latency. Faults of the
network between a member and a broker's host are therefore faults of its connection to ZooKeeper.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final, final

import trio

from kgroup.broker.server import MEMORY_HOST
from kgroup.testing.simulation.network import Accept, Network, SimulatedStream
from kgroup.testing.simulation.virtual_time import call_at
from kgroup.testing.simulation.zookeeper.ensemble import (
    Ensemble,
    EnsembleObserver,
    ZooKeeperConnection,
)
from kgroup.testing.simulation.zookeeper.messages import EnsembleSettings, ServerMessage

PORT: Final = 2181
"""The port of the first server; the others have the next ones."""


def address_of(number: int) -> tuple[str, int]:
    """The host and port of a server."""
    return MEMORY_HOST, PORT + number


@final
class ZooKeeperServers:
    """The servers of one ensemble.

    Args:
        hosts: for each server the name that the network knows its host by.
        network: the network.
        nursery: where connections are served.
        settings: how the ensemble behaves.
        random: every random choice of it.
        observer: learns what it does.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        network: Network,
        nursery: trio.Nursery,
        settings: EnsembleSettings,
        random: Random,
        observer: EnsembleObserver,
    ) -> None:
        self.ensemble: Final = Ensemble(settings, random, self._send, observer)
        self._nursery = nursery
        self._streams: dict[ZooKeeperConnection, SimulatedStream] = {}
        self._alarm = trio.current_time()
        for number, name in enumerate(hosts):
            network.listen(*address_of(number), name, self._acceptor(number))

    def stop(self, number: int) -> None:
        """A server's host stops."""
        self.ensemble.stop_server(trio.current_time(), number)
        self._set_alarm()

    def start(self, number: int) -> None:
        """A server's host starts again."""
        self.ensemble.start_server(trio.current_time(), number)
        self._set_alarm()

    def move_leader(self, away: float) -> None:
        """The leader moves; see ``Ensemble.move_leader``."""
        self.ensemble.move_leader(trio.current_time(), away)
        self._set_alarm()

    def expire(self, session: int) -> None:
        """A session is ended; see ``Ensemble.expire_session``."""
        self.ensemble.expire_session(trio.current_time(), session)
        self._set_alarm()

    def _acceptor(self, number: int) -> Accept:
        def accept(stream: SimulatedStream, client: str) -> None:
            connection = self.ensemble.connect(trio.current_time(), client, number)
            self._streams[connection] = stream
            self._nursery.start_soon(self._serve, connection, stream)

        return accept

    async def _serve(self, connection: ZooKeeperConnection, stream: SimulatedStream) -> None:
        try:
            while data := await stream.receive_some():
                message = pickle.loads(data)  # noqa: S301 # made in this process by the client
                self.ensemble.receive(trio.current_time(), connection, message)
                self._set_alarm()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.ensemble.lost(trio.current_time(), connection)
        self._streams.pop(connection, None)
        self._set_alarm()
        await stream.aclose()

    def _send(self, connection: ZooKeeperConnection, message: ServerMessage | None) -> None:
        stream = self._streams.get(connection)
        if stream is None:
            return
        if message is None:
            stream.close_now()
            return
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # `_serve` notices
            stream.send_now(pickle.dumps(message))

    def _set_alarm(self) -> None:
        """Have the clock call the ensemble when it is due."""
        due = self.ensemble.due
        if due < self._alarm or self._alarm <= trio.current_time():
            self._alarm = due
            if due < math.inf:
                call_at(due, self._wake)

    def _wake(self) -> None:
        self.ensemble.advance(trio.current_time())
        self._set_alarm()
