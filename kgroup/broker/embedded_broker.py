"""One embedded broker, as programs and tests hold it: alone, or one of several in a cluster.

A single broker is a cluster of one. Everything that concerns the cluster as a whole (topics,
records, groups) is in ``kgroup.broker.admin``; here is what concerns this broker: whether it runs,
its connections, and the faults that a test injects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import trio

from kgroup import arguments
from kgroup.broker.admin import BrokerAdmin
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.endpoint import Endpoint
from kgroup.broker.faults import InjectedFault, Match, code_of

SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds that a broker which shuts down gives to the requests that it is serving."""


@final
class EmbeddedBroker(BrokerAdmin):
    """A running embedded broker.

    ``serve`` and ``in_memory`` make a single one, ``EmbeddedCluster.nodes`` has those of a
    cluster. Each has the methods that concern the whole cluster, too: any broker knows all topics,
    records and groups.

    Attributes:
        node_id: its id.
        log: reads records, for tests and in-memory consumers.
        cluster: the state that it shares with the other brokers.
    """

    _variable = "broker"

    def __init__(
        self,
        cluster: ClusterState,
        node_id: int,
        endpoints: Mapping[int, Endpoint],
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(cluster, endpoints)
        self.node_id: Final = node_id
        self._endpoint = endpoints[node_id]
        self._nursery = nursery

    def __repr__(self) -> str:
        state = "up" if self._endpoint.is_listening else "down"
        return f"<EmbeddedBroker {self.node_id} at {self.bootstrap_servers}, {state}>"

    # Its address.

    @property
    def host(self) -> str:
        """The host that clients connect to."""
        return self._endpoint.host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._endpoint.port

    @property
    def bootstrap_servers(self) -> str:
        """This broker's ``host:port``, for a client's ``bootstrap.servers``."""
        return self._endpoint.bootstrap_server

    # Its life.

    @property
    def is_up(self) -> bool:
        """Whether it takes part in the cluster: it can lead partitions and coordinate groups."""
        return self.cluster.live_brokers.is_up(self.node_id)

    async def start(self, *, loading: float = 0.0) -> None:
        """Listen again, on the same port, after ``stop``, ``kill`` or ``disconnect``.

        After ``stop`` and ``kill`` the broker leads the partitions and coordinates the groups that
        no other broker could take over; the others stay where they are until
        ``EmbeddedCluster.rebalance_leaders``. A broker that is listening stays as it is.

        Args:
            loading: seconds for which coordinators that move to it answer
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            ArgumentError: the time is no number of seconds.
            OSError: the address cannot be listened on.
        """
        self._check_loop("start")
        arguments.delay("loading", loading)
        if self._endpoint.is_listening:
            await trio.lowlevel.checkpoint()
            return
        await self._endpoint.open()
        if not self.is_up:
            hand_over = self.cluster.broker_started(self.node_id)
            self.cluster.shards.load_soon(self._nursery, hand_over, loading=loading)

    async def stop(self, *, loading: float = 0.0) -> None:
        """Shut the broker down in an orderly way.

        It takes no new connections. What it leads moves to replicas on other brokers, or has no
        leader until it starts again. Parked requests are answered NOT_COORDINATOR, requests that
        are being served are answered, and then its connections end. A stopped broker stays as it
        is.

        Args:
            loading: seconds for which coordinators that move to other brokers answer
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            ArgumentError: the time is no number of seconds.

        Cancellation: connections are cut at once; the broker is stopped.
        """
        self._check_loop("stop")
        arguments.delay("loading", loading)
        if not self.is_up:
            await trio.lowlevel.checkpoint()
            return
        self._endpoint.close()
        hand_over = self.cluster.broker_stopped(self.node_id, answer=True)
        self.cluster.shards.load_soon(self._nursery, hand_over, loading=loading)
        await self._endpoint.finish(SHUTDOWN_TIMEOUT)

    def kill(self, *, loading: float = 0.0) -> None:
        """End the broker at once: connections are cut, and no parked request is answered.

        Others take over as after ``stop``; a coordinator keeps what Kafka writes to its log. A
        stopped broker stays as it is.

        Args:
            loading: seconds for which coordinators that move to other brokers answer
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            ArgumentError: the time is no number of seconds.
        """
        self._check_loop("kill")
        arguments.delay("loading", loading)
        if not self.is_up:
            return
        self._endpoint.close()
        self._endpoint.cut_connections()
        hand_over = self.cluster.broker_stopped(self.node_id, answer=False)
        self.cluster.shards.load_soon(self._nursery, hand_over, loading=loading)

    # Its connections.

    async def disconnect(self) -> None:
        """Stop listening and cut every connection, until ``start``; the broker itself runs on.

        It still leads its partitions and coordinates its groups, and their timers continue, as
        after a failure of the network.
        """
        self._check_loop("disconnect")
        self.close()
        self.cut_connections()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._check_loop("close")
        self._endpoint.close()

    def accept(self, stream: trio.abc.Stream, client_host: str) -> None:
        """Serve a connection that the caller has made, over a simulated network for example.

        Args:
            stream: the broker's end; it is closed when the connection ends.
            client_host: the address that the client seems to come from.

        Raises:
            OSError: the broker does not listen.
        """
        self._check_loop("accept")
        self._endpoint.accept(stream, client_host)

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close connections now, all or those of one client, and return how many.

        A request that is parked on one has been handled: a member whose JoinGroup was parked
        stays in its group until its timers expire.
        """
        self._check_loop("cut_connections")
        return self._endpoint.cut_connections(client_id)

    # Faults.

    def inject(
        self, api: str, error_code: int | str, times: int | None = 1, match: Match | None = None
    ) -> InjectedFault:
        """Answer the next requests of an API with an error instead of serving them.

        Args:
            api: Kafka's name, such as ``"Heartbeat"``, or kio's, such as ``"heartbeat"``.
            error_code: Kafka's name of the error, such as ``"NOT_COORDINATOR"``, or its number.
            times: how many requests, None for all until ``InjectedFault.cancel``.
            match: takes kio's dataclass of the request and returns whether the fault applies.

        Raises:
            ArgumentError: an argument is of a wrong type, ``error_code`` is NONE or no number of 16
                bits, or ``times`` is less than 1.
            ValueError: there is no such API or error.
        """
        self._check_loop("inject")
        arguments.instance("api", api, str)
        return self._endpoint.faults.plan(
            api, error_code=code_of(error_code), times=times, match=match
        )

    def slow(
        self,
        seconds: float,
        api: str | None = None,
        times: int | None = None,
        match: Match | None = None,
    ) -> InjectedFault:
        """Delay requests, of one API or of all, until ``InjectedFault.cancel``.

        Raises:
            ArgumentError: as for `inject`, or ``seconds`` is no number of seconds.
            ValueError: there is no such API.
        """
        self._check_loop("slow")
        return self._endpoint.faults.plan(api, delay=seconds, times=times, match=match)

    def fail_coordinator_writes(self, error_code: int | str, times: int | None = 1) -> None:
        """Let the next writes of this broker's group coordinator to its log fail.

        Requests are answered as Kafka maps the error, and groups continue as Kafka's do: if a
        leader's SyncGroup cannot be written, every member must join again; a commit that cannot be
        written commits nothing. docs/coordinator.md lists the errors.

        Args:
            error_code: Kafka's name of the log's error, such as ``"NOT_ENOUGH_REPLICAS"``, or its
                number.
            times: how many writes, None for all until another call, 0 for no further one.

        Raises:
            ArgumentError: ``times`` is neither None nor a whole number.
            ValueError: there is no such error, or no write fails with it.
        """
        self._check_loop("fail_coordinator_writes")
        if times is not None:
            arguments.whole("times", times, 0)
        self._endpoint.coordinator.fail_writes(code_of(error_code), times)

    def set_reachable(self, *, reachable: bool) -> None:
        """Set whether clients reach the broker; if not, connections stay open and get no answer.

        The broker still leads its partitions and coordinates its groups.
        """
        self._check_loop("set_reachable")
        self._endpoint.faults.set_reachable(reachable=reachable)
