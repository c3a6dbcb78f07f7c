"""Finds out why librdkafka cannot connect: by one of kgroup's own connections to the same broker.

librdkafka reports a certificate that is not accepted without the reason, and most ports that are
not Kafka's as a time-out. kgroup's own connection has an error with the reason and what to do. It
sends what librdkafka sends: with TLS and the login that the settings ask for, or not at all.
Brokers answer ApiVersions on every port, so one Metadata follows it: only that shows that a port
asks for a login.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import trio

from kgroup.addresses import split_address
from kgroup.cli.options import one_line
from kgroup.cli.signals import run_whole
from kgroup.errors import KgroupError, TransportError
from kgroup.security.settings import Security, SecurityProtocol
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.connection import Connection
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.metadata_request import metadata_fields
from kgroup.worker_thread import WorkerThread

__all__ = ["why_not_connected"]

_TIMEOUT: Final = 3.0
"""Seconds for one broker, if the command itself has more."""
_MOST: Final = 3
"""The most brokers that are tried."""
_NO_TOPICS: Final = partial(metadata_fields, ())
"""A request that every user may send, and that changes nothing."""
_ADVICE: Final = "; --config gives the protocol and the login"


def why_not_connected(
    addresses: Iterable[str], security: Security, timeout: float, client_id: str
) -> str:
    """The first failure of connections to brokers, one after the other. It blocks.

    Args:
        addresses: the brokers, as "host:port".
        security: how connections are encrypted, and how the client logs in.
        timeout: seconds for each, if that is less than the few that are enough.
        client_id: the client's name.

    Returns:
        the failure in one line; empty if each of them answers a request.
    """

    async def first_failure() -> KgroupError | None:
        secured = ConnectionSecurity(security, WorkerThread)
        limit = min(timeout, _TIMEOUT)
        for host, port in map(split_address, [*addresses][:_MOST]):
            try:
                connection = await Connection.open(
                    open_tcp,
                    host,
                    port,
                    client_id=client_id,
                    timeout=limit,
                    security=secured,
                )
                try:
                    await connection.request("metadata", _NO_TOPICS, timeout=limit)
                finally:
                    await connection.aclose()
            except KgroupError as error:
                return error
        await trio.lowlevel.checkpoint()
        return None

    failure = run_whole(first_failure)
    if failure is None:
        return ""
    unset = security.protocol in (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)
    # Hints name the protocols of Security, which a command is not given.
    to_set = isinstance(failure, TransportError) and "protocol" in failure.hint
    return one_line(failure) + (_ADVICE if unset and to_set else "")
