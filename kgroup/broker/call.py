"""What a handler is given: one request, who sent it, to which broker, and the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import attrs

from kgroup.broker.answer import Answer
from kgroup.broker.cluster import Cluster
from kgroup.broker.node import Node
from kgroup.broker.pace import Work


@final
@attrs.frozen(kw_only=True)
class Call:
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

    cluster: Cluster
    node: Node
    api: str
    version: int
    request: Any
    client_id: str
    client_host: str
    work: Work


@final
class Silence:
    """The answer that is none: the request is never answered."""


SILENCE: Final = Silence()
"""Nothing is sent, and nothing later on this connection is answered either."""
NO_ANSWER: Final = None
"""Nothing is sent, and the connection goes on (Produce with acks=0)."""
NO_ACKS: Final = 0
"""The ``acks`` of a Produce that wants no answer."""

Handler = Callable[[Call], Awaitable[Answer | Silence | None]]
