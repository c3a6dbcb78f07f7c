"""What a check is, and what it finds.

Facts are many and most of them concern no check, so each check says which kinds it wants; see
``kind_of``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import attrs

from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.plan import Plan

Reaction = Callable[[Any], None]
"""Takes a fact of one kind in."""


@final
@attrs.frozen(kw_only=True)
class Violation:
    """Something that must not be.

    Attributes:
        number: of the invariant, 1 to 13.
        at: when it was found, in virtual seconds.
        what: happened, to whom: a sentence.
    """

    number: int
    at: float
    what: str

    def __str__(self) -> str:
        return f"invariant {self.number} broken at {self.at:.3f} s: {self.what}"


class Check(ABC):
    """One invariant, judged from what was seen of one simulation."""

    number: ClassVar[int]
    says: ClassVar[str]
    """The invariant, as a sentence."""

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        self.plan = plan
        self.views = views
        self._found = found

    @property
    @abstractmethod
    def reactions(self) -> Mapping[Kind, Reaction]:
        """What to do with each kind of fact; all others are none of its business."""

    def accuse(self, at: float, what: str) -> None:
        """Tell of something that breaks this invariant."""
        self._found(Violation(number=self.number, at=at, what=what))
