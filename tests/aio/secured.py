"""A broker that asks for a login, in a thread of the tests, which can cut its connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

import trio

import kgroup
from kgroup.background.event_loop import BackgroundLoop
from kgroup.broker import BrokerSecurity, EmbeddedBroker, serve
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness

USER: Final = "worker"
PASSWORD: Final = "secret"  # noqa: S105 # of a broker of tests
_AT_ONCE: Final = {"group.initial.rebalance.delay.ms": "0"}


def secured(credentials: Callable[[], Awaitable[kgroup.Credentials]]) -> kgroup.Security:
    """Settings with which a program looks up its login."""
    return kgroup.Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=credentials)


@final
class Secured:
    """Such a broker, and a topic with a record on it."""

    def __init__(self) -> None:
        self.loop = BackgroundLoop("secured-broker", self._main, lambda: None)
        self.stop, self._ready = trio.Event(), trio.Event()
        self._broker: EmbeddedBroker | None = None
        self.loop.start()
        self.loop.run(self._ready.wait, SOON)
        self.harness = Harness(Kafka(EMBEDDED, self._served.bootstrap_servers))
        self.loop.run(self._create, SOON)

    def cut(self) -> None:
        """Cut all connections."""
        assert self.loop.run_sync(self._served.cut_connections)

    @property
    def _served(self) -> EmbeddedBroker:
        assert self._broker is not None
        return self._broker

    async def _create(self) -> None:
        await self._served.create_topic(self.harness.topic, 1)
        await self._served.append(self.harness.topic, 0, [b"0"])

    async def _main(self) -> None:
        security = BrokerSecurity(users={USER: PASSWORD})
        async with serve(settings=_AT_ONCE, security=security) as self._broker:
            self._ready.set()
            await self.stop.wait()


@contextmanager
def secured_broker() -> Iterator[Secured]:
    """Run one."""
    broker = Secured()
    try:
        yield broker
    finally:
        broker.loop.post(broker.stop.set)
        broker.loop.join()
