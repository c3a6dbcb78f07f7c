"""The argument of handlers: one request, its sender, the broker that received it, the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import attrs

from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.node import Node
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.session import LoginSession
from kgroup.broker.time_slices import Work


@final
@attrs.frozen(kw_only=True)
class RequestContext:
    """One request.

    Attributes:
        cluster: the state that the request works on.
        node: the broker that received it.
        api: kio's name of the API.
        version: the version of the request, which the response has too.
        request: kio's dataclass of the request.
        client_id: the client id in the request.
        client_host: the address of the client, as Kafka shows it ("/127.0.0.1").
        user: the name of the user who sent it; ANONYMOUS without a login or certificate.
        login: the connection's login; None if its listener has none.
        work: counts the cost of the request; handlers iterate lists with ``work.each``.
    """

    cluster: ClusterState
    node: Node
    api: str
    version: int
    request: Any
    client_id: str
    client_host: str
    user: str
    login: LoginSession | None
    work: Work


@final
class NoResponse:
    """Instead of a response: the request is never answered."""


NEVER_ANSWERED: Final = NoResponse()
"""Nothing is sent, and no later request on this connection is answered either."""
NO_ACKS: Final = 0
"""The ``acks`` of a Produce that wants no response."""

#: Returns the fields of the response. None: nothing is sent, and the connection stays open (Produce
#: with acks=0).
Handler = Callable[[RequestContext], Awaitable[ResponseFields | NoResponse | None]]
