"""What a check is, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, final

import attrs

from kgroup.testing.simulation.facts import Fact
from kgroup.testing.simulation.plan import Plan


@final
@attrs.frozen(kw_only=True)
class Violation:
    """Something that must not be.

    Attributes:
        number: of the invariant, 1 to 12.
        at: when it was found, in virtual seconds.
        what: happened, to whom: a sentence.
    """

    number: int
    at: float
    what: str

    def __str__(self) -> str:
        return f"invariant {self.number} broken at {self.at:.3f} s: {self.what}"


class Check(ABC):
    """One invariant; sees every fact once, in order."""

    number: ClassVar[int]
    says: ClassVar[str]
    """The invariant, as a sentence."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @abstractmethod
    def see(self, fact: Fact) -> Iterator[Violation]:
        """Take the next fact in; what is wrong with it."""

    def violation(self, at: float, what: str) -> Violation:
        """Something that breaks this invariant."""
        return Violation(number=self.number, at=at, what=what)
