"""One request to a group's coordinator, through kgroup's own connections, as often as it takes.

librdkafka has no call for some requests, and one that crashes for another (`committed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, final

import attrs
import trio

from kgroup.cli.admin_client import CLIENT_ID, ClusterError
from kgroup.cli.options import one_line
from kgroup.cli.signals import run_whole
from kgroup.client.backoff import Backoff
from kgroup.client.cluster import Cluster
from kgroup.client.error_policy import Reaction, Request
from kgroup.client.retry import find_coordinator, until_answered
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, KgroupError
from kgroup.group import default_runtime
from kgroup.permissions import to_grant
from kgroup.runtime import Runtime
from kgroup.security.settings import Security
from kgroup.types import BrokerAddress

T = TypeVar("T")

_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 1.0
"""Seconds between two attempts; the wait doubles from the first to this."""


@final
class NoAnswerError(ClusterError):
    """The group's coordinator has not answered in time."""


@final
@attrs.frozen
class CoordinatorRequest(Generic[T]):
    """A request about a group.

    Attributes:
        kind: its rows in the error policy.
        api: kio's name of it.
        fields: returns the fields of a version.
        read: returns the value of a response, or raises BrokerError or InvalidResponseError.
        subject: what is requested, for errors.
    """

    kind: Request
    api: str
    fields: Callable[[int], Mapping[str, Any]]
    read: Callable[[Any], T]
    subject: str

    def send(self, servers: str, group_id: str, security: Security, timeout: float) -> T:
        """Send it until it is answered. It blocks.

        Args:
            servers: the cluster.
            group_id: the group.
            security: how connections are encrypted, and how the client logs in.
            timeout: seconds for all of it.

        Raises:
            NoAnswerError: it is not answered in time, not even by an error that passes.
            ClusterError: it is refused, or such an error has not passed in time.
        """
        # Kafka allows groups with blank names, in which GroupConfig lets no member join.
        config = GroupConfig(
            bootstrap_servers=servers,
            group_id=CLIENT_ID,
            topics=(re.compile(".*"),),
            client_id=CLIENT_ID,
            security=security,
        )
        failure = f"{self.subject} of group {group_id!r} cannot be fetched"

        async def within_timeout() -> T:
            failures: list[KgroupError] = []
            with trio.move_on_after(timeout):
                return await self.send_from(config, group_id, default_runtime(), failures.append)
            reason = f": {one_line(failures[-1])}" if failures else ""
            answered = any(isinstance(one, BrokerError) for one in failures)
            kind = ClusterError if answered else NoAnswerError
            raise kind(f"{failure} within {timeout:g} s{reason}")

        try:
            return run_whole(within_timeout)
        except KgroupError as error:
            raise ClusterError(f"{failure}: {_why(error, group_id)}") from error

    async def send_from(
        self,
        config: GroupConfig,
        group_id: str,
        runtime: Runtime,
        failed: Callable[[KgroupError], None],
    ) -> T:
        """The same in an event loop, without a time limit.

        Args:
            config: the cluster and the security; its group is not used.
            group_id: the group.
            runtime: opens the connections.
            failed: is called with each failure that is retried.

        Raises:
            BrokerError | TransportError: a retry cannot help.

        Cancellation: the connections are closed.
        """
        cluster = Cluster(config, runtime.open_stream, runtime.random)
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT, runtime.random)

        def report(request: Request, error: KgroupError, reaction: Reaction) -> None:
            del request, reaction
            failed(error)

        coordinator: list[BrokerAddress] = []

        async def find() -> None:
            coordinator[:] = [await cluster.find_coordinator(group_id)]

        try:
            await find_coordinator(find, backoff, report)
            return await until_answered(
                self.kind,
                lambda: self._send_once(cluster, coordinator[0], config),
                find=find,
                backoff=backoff,
                report=report,
            )
        finally:
            await cluster.aclose()

    async def _send_once(self, cluster: Cluster, to: BrokerAddress, config: GroupConfig) -> T:
        connection = cluster.new_connection(to.host, to.port)
        try:
            return await connection.request_value(
                self.read, self.api, self.fields, timeout=config.request_timeout
            )
        finally:
            await connection.aclose()


def _why(error: KgroupError, group_id: str) -> str:
    """The error's text; its advice is for members, which need more than this command."""
    if isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"{error.name}: {to_grant(error.code, 'DESCRIBE', group=group_id)}"
    return one_line(error)
