"""What a test does to one embedded broker, whether it is alone or one of several."""

from __future__ import annotations

import trio

from kgroup.broker.endpoint import Endpoint
from kgroup.broker.faults import InjectedFault, Match


class BrokerControl:
    """One broker, as a test holds it."""

    _endpoint: Endpoint

    @property
    def host(self) -> str:
        """The host that clients are told."""
        return self._endpoint.host

    @property
    def port(self) -> int:
        """The port that clients are told."""
        return self._endpoint.port

    def accept(self, stream: trio.abc.Stream, client_host: str) -> None:
        """Serve a connection that somebody else has made, a network in memory for one.

        Args:
            stream: the broker's end; it is closed when the connection ends.
            client_host: where the client is said to come from.

        Raises:
            OSError: the broker is stopped.
        """
        self._endpoint.accept(stream, client_host)

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
    ) -> InjectedFault:
        """Answer the next requests of an API with an error instead of serving them.

        Args:
            api: kio's name, such as ``"heartbeat"``.
            error_code: Kafka's number of the error.
            times: how many requests, None for all until ``InjectedFault.cancel``.
            match: takes kio's dataclass of the request and says whether it is meant.

        Raises:
            ValueError: there is no such API.
        """
        return self._endpoint.faults.plan(api, error_code=error_code, times=times, match=match)

    def slow(
        self,
        seconds: float,
        api: str | None = None,
        times: int | None = None,
        match: Match | None = None,
    ) -> InjectedFault:
        """Serve requests, of one API or of all, only after a while, until ``InjectedFault.cancel``.

        Raises:
            ValueError: there is no such API.
        """
        return self._endpoint.faults.plan(api, delay=seconds, times=times, match=match)

    def fail_coordinator_writes(self, error_code: int, times: int | None = 1) -> None:
        """Let the next writes of this broker's group coordinator to its log fail.

        Requests are answered with what Kafka makes of the error, and groups go on as Kafka's do:
        a leader's Sync that cannot be written sends everybody back to join, a commit that cannot
        be written commits nothing. docs/coordinator.md has it all.

        Args:
            error_code: Kafka's number of the log's error, such as 19 (NOT_ENOUGH_REPLICAS).
            times: how many writes, None for all until another call, 0 for none any more.

        Raises:
            ValueError: no write fails with this error.
        """
        self._endpoint.coordinator.fail_writes(error_code, times)

    def set_reachable(self, *, reachable: bool) -> None:
        """While not reachable, connections stay open but no request is read and none answered.

        What the broker leads it goes on to lead.
        """
        self._endpoint.faults.set_reachable(reachable=reachable)
