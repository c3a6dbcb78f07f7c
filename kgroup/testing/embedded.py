"""The embedded broker for programs and tests without an event loop, in a background thread.

Any Kafka client can connect to it, in this process or another. It keeps nothing on disk.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final, overload

import trio

from kgroup import arguments
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.broker import (
    BrokerSecurity,
    BrokerSettings,
    EmbeddedCluster,
    NewRecord,
    serve_cluster,
)
from kgroup.errors import UsageError, short_repr
from kgroup.types import OffsetAndMetadata, TopicPartition
from kgroup.uncopied import SEND_ADDRESS, Uncopied

T = TypeVar("T")

_NOT_RUNNING: Final = "the embedded Kafka is not running; use it as `with EmbeddedKafka():`"
_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": 0}
"""A test's group starts without a delay, unless the settings say otherwise."""


@final
class EmbeddedKafka(Uncopied):
    """A cluster of embedded brokers on TCP ports, which runs as long as its ``with`` block.

    All methods block, and may be called from any thread except the broker's own.

    Args:
        settings: Kafka's property names with their values, or ``BrokerSettings``. By default,
            groups start without the initial rebalance delay.
        brokers: the number of brokers.
        security: users, rights and TLS; by default there are none.

    Raises:
        ConfigError: from ``with``; a property is unknown, or its value is not allowed.
        OSError: from ``with``; no port is available.
        BaseException: from the end of ``with``; an error that has ended the brokers meanwhile. If
            the block ends by an exception, that one has a note about it.
        UsageError: from ``with``; it was entered before.
    """

    _in_its_place = SEND_ADDRESS

    def __init__(
        self,
        settings: BrokerSettings | Mapping[str, object] | None = None,
        *,
        brokers: int = 1,
        security: BrokerSecurity | None = None,
    ) -> None:
        self._settings = _NO_DELAY if settings is None else settings
        self._brokers = brokers
        self._security = security
        self._loop = BackgroundLoop("kgroup-embedded-kafka", self._serve, lambda: None)
        self._ready = trio.Event()
        self._stopping = trio.Event()
        self._entered = False
        self._cluster: EmbeddedCluster | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        if self._entered:
            raise UsageError("an EmbeddedKafka can be entered only once; make another one")
        self._entered = True
        try:
            self._loop.start()
            self._loop.run(self._ready.wait)
        except LoopEndedError:
            self._loop.join()
            if self._error is not None:
                raise self._error from None
            raise
        except BaseException:
            self._loop.post(self._stopping.set)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._loop.forked:
                return  # only the parent process may stop the broker
            self._loop.post(self._stopping.set)
            self._loop.join()
        except BaseException:
            # Interrupted, possibly before anything was done: the broker still ends, by itself.
            self._loop.post(self._stopping.set)
            raise
        self._cluster = None
        if self._error is None:
            return
        if error is None:
            raise self._error
        error.add_note(f"The embedded Kafka had ended by an error: {short_repr(self._error)}")

    def __repr__(self) -> str:
        where = "not running" if self._cluster is None else self._cluster.bootstrap_servers
        return f"<EmbeddedKafka, {where}>"

    @property
    def cluster(self) -> EmbeddedCluster:
        """The cluster, for the methods that `call` takes: leaders, coordinators, faults of brokers.

        Raises:
            UsageError: it is not running.
        """
        if self._cluster is None:
            raise UsageError(_NOT_RUNNING)
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """The value of a client's ``bootstrap.servers``."""
        return self.cluster.bootstrap_servers

    @property
    def ca(self) -> str | None:
        """The authority of a certificate that was made on the spot, in PEM: ``Security.ca``."""
        return self.cluster.ca

    @overload
    def call(self, fn: Callable[..., Awaitable[T]], *args: object, **named: object) -> T: ...

    @overload
    def call(self, fn: Callable[..., T], *args: object, **named: object) -> T: ...

    def call(self, fn: Callable[..., Any], *args: object, **named: object) -> Any:
        """Call a method of the cluster, or of one of its brokers, in the broker's thread.

        The method may be async or not. For example
        ``kafka.call(kafka.cluster.move_coordinator, "group", 2)``, or
        ``kafka.call(kafka.cluster.nodes[1].inject, "Heartbeat", "NOT_COORDINATOR")``.

        Raises:
            ArgumentError: ``fn`` is no function, but its result, such as a coroutine.
            UsageError: it is not running, or runs in the process of which this one is a fork.
            Exception: what the method raised.
        """
        arguments.function("fn", fn)
        if self._cluster is None:
            raise UsageError(_NOT_RUNNING)
        if self._loop.forked:
            raise UsageError(
                f"the embedded Kafka runs in process {self._loop.pid}, of which this one is a fork;"
                " call it there. Clients of any process can connect to its bootstrap_servers"
            )
        try:
            return self._loop.run(partial(_called, fn, args, named))
        except LoopEndedError:
            if self._error is not None:
                raise UsageError(
                    "the embedded Kafka has ended by an error, which is the cause of this one"
                ) from self._error
            raise UsageError(_NOT_RUNNING) from None

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; see ``EmbeddedCluster.create_topic``."""
        self.call(self.cluster.create_topic, name, partitions)

    def append(self, topic: str, partition: int, records: Sequence[bytes | NewRecord]) -> int:
        """Append records as one batch, and return the offset of the first."""
        return self.call(self.cluster.append, topic, partition, records)

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; empty for an unknown group."""
        return self.call(self.cluster.committed, group_id)

    async def _serve(self) -> None:
        try:
            running = serve_cluster(self._brokers, settings=self._settings, security=self._security)
            async with running as cluster:
                self._cluster = cluster
                self._ready.set()
                await self._stopping.wait()
        except BaseException as error:
            self._error = error
            raise


async def _called(fn: Callable[..., Any], args: Sequence[object], named: Mapping[str, Any]) -> Any:
    await trio.lowlevel.checkpoint()
    returned = fn(*args, **named)
    return await returned if inspect.isawaitable(returned) else returned
