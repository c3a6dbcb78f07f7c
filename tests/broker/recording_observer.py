"""A ``PurgatoryObserver`` that records what it sees."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import final

from kgroup.broker.groups.requests import Request
from kgroup.broker.groups.responses import CoordinatorResponse


@final
class RecordingObserver:
    """A ``PurgatoryObserver``.

    Attributes:
        requests: each request with its ticket and the responses that it caused.
        expiries: the responses each time that timers were due.
        lost: the shards unloaded each time, with the responses.
        gained: the shards loaded each time.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[Request, Hashable, Sequence[CoordinatorResponse]]] = []
        self.expiries: list[Sequence[CoordinatorResponse]] = []
        self.lost: list[tuple[Collection[int], Sequence[CoordinatorResponse]]] = []
        self.gained: list[Collection[int]] = []

    def handled(
        self, request: Request, ticket: Hashable, responses: Sequence[CoordinatorResponse]
    ) -> None:
        """See ``PurgatoryObserver``."""
        self.requests.append((request, ticket, responses))

    def expired(self, responses: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        self.expiries.append(responses)

    def unloaded(self, shards: Collection[int], responses: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        self.lost.append((shards, responses))

    def loaded(self, shards: Collection[int]) -> None:
        """See ``PurgatoryObserver``."""
        self.gained.append(shards)
