"""The base class of checks, and what they find.

A history is long and most entries concern few checks, so each check names the kinds of entries
that it handles; see ``kind_of``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import attrs

from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

EntryHandler = Callable[[Any], None]
"""Handles an entry of one kind."""


@final
@attrs.frozen(kw_only=True)
class Violation:
    """An invariant that was broken.

    Attributes:
        number: the number of the invariant, 1 to 15.
        at: when it was found, in virtual seconds.
        what: what happened, and which member, partition or program it affected.
        detail: further lines, such as a traceback; empty if there are none.
        partition: the partition that it is about, or None; the timeline shows what led to it there.
        offset: the record of it, or the position, or None.
    """

    number: int
    at: float
    what: str
    detail: str = ""
    partition: TopicPartition | None = None
    offset: int | None = None

    def __str__(self) -> str:
        return f"invariant {self.number} broken at {self.at:.3f} s: {self.what}"


class Check(ABC):
    """Checks one invariant against the history of one simulation."""

    number: ClassVar[int]
    invariant: ClassVar[str]
    """The invariant, in words; docs/invariants.md is made of them."""

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        self.plan = plan
        self.views = views
        self._on_violation = on_violation

    @property
    @abstractmethod
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """The handler for each kind of entry that the check needs."""

    def report(
        self,
        at: float,
        what: str,
        detail: str = "",
        *,
        partition: TopicPartition | None = None,
        offset: int | None = None,
    ) -> None:
        """Report that this invariant is broken; see `Violation`."""
        self._on_violation(
            Violation(
                number=self.number,
                at=at,
                what=what,
                detail=detail,
                partition=partition,
                offset=offset,
            )
        )
