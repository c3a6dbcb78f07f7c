"""What a handler is given: one request, who sent it, to which broker, and the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import attrs

from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.node import Node
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.time_slices import Work


@final
@attrs.frozen(kw_only=True)
class RequestContext:
    """One request.

    Attributes:
        cluster: what it is about.
        node: the broker that it came to.
        api: kio's name of the API.
        version: the version that it came in, and that its answer has.
        request: kio's dataclass of it.
        client_id: who sent it, by its own words.
        client_host: from where, as Kafka shows it ("/127.0.0.1").
        work: counts what the request costs; handlers go through lists with ``work.each``.
    """

    cluster: ClusterState
    node: Node
    api: str
    version: int
    request: Any
    client_id: str
    client_host: str
    work: Work


@final
class NoResponse:
    """The answer that is none: the request is never answered."""


NEVER_ANSWERED: Final = NoResponse()
"""Nothing is sent, and nothing later on this connection is answered either."""
NO_ACKS: Final = 0
"""The ``acks`` of a Produce that wants no answer."""

Handler = Callable[[RequestContext], Awaitable[ResponseFields | NoResponse | None]]
