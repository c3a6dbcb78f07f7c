"""Somebody who looks on as coordinators are asked, come and go, and takes note of it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import final

from kgroup.broker.groups.requests import Request
from kgroup.broker.groups.responses import CoordinatorResponse


@final
class Onlooker:
    """A ``PurgatoryObserver``.

    Attributes:
        asked_for: each request with its ticket and the answers that it gave rise to.
        expiries: what was answered each time that timers were due.
        lost: the shards given up each time, and who was told so.
        gained: the shards loaded each time.
    """

    def __init__(self) -> None:
        self.asked_for: list[tuple[Request, Hashable, Sequence[CoordinatorResponse]]] = []
        self.expiries: list[Sequence[CoordinatorResponse]] = []
        self.lost: list[tuple[Collection[int], Sequence[CoordinatorResponse]]] = []
        self.gained: list[Collection[int]] = []

    def handled(
        self, request: Request, ticket: Hashable, answers: Sequence[CoordinatorResponse]
    ) -> None:
        """See ``PurgatoryObserver``."""
        self.asked_for.append((request, ticket, answers))

    def expired(self, answers: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        self.expiries.append(answers)

    def unloaded(self, shards: Collection[int], answers: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        self.lost.append((shards, answers))

    def loaded(self, shards: Collection[int]) -> None:
        """See ``PurgatoryObserver``."""
        self.gained.append(shards)
