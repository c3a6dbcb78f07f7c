"""Invariant 10: every assignment ends, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.events import Assigned, GenerationEnded, GenerationStarted, Joined, Joining, Left
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import ProcessCrashed, ProcessEnded, Told

_Owner = tuple[str, int, str]
"""A program, its life, and the group."""


@final
class Endings(Check):
    """Follows each generation of each life from its beginning to its end.

    Of a program that crashes nobody hears the end.
    """

    number: ClassVar[int] = 10
    says: ClassVar[str] = (
        "Each assigned partition ends exactly once, as revoked or as lost, before its owner joins"
        " again, leaves or ends."
    )

    _open: dict[_Owner, int]

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        self._open = {}
        return {
            Joined: self._joined,
            Joining: self._goes_on,
            Left: self._goes_on,
            Assigned: self._used,
            GenerationStarted: self._used,
            GenerationEnded: self._ended,
            ProcessEnded: self._process_ended,
            ProcessCrashed: self._crashed,
        }

    def _joined(self, fact: Told) -> None:
        self._goes_on(fact)
        self._open[_owner(fact)] = fact.event.epoch

    def _goes_on(self, fact: Told) -> None:
        epoch = self._open.pop(_owner(fact), None)
        if epoch is not None:
            self._never_ended(fact.at, fact.process, epoch, f"when it told: {fact.event.message()}")

    def _used(self, fact: Told) -> None:
        if self._open.get(_owner(fact)) != fact.event.epoch:
            self.accuse(
                fact.at,
                f"{fact.process} told of epoch {fact.event.epoch}, which it does not have:"
                f" {fact.event.message()}",
            )

    def _ended(self, fact: Told) -> None:
        epoch = self._open.pop(_owner(fact), None)
        if epoch != fact.event.epoch:
            self.accuse(
                fact.at,
                f"{fact.process} told of the end of epoch {fact.event.epoch}, which had ended or"
                f" never begun: {fact.event.message()}",
            )

    def _process_ended(self, fact: ProcessEnded) -> None:
        for owner in [one for one in self._open if one[:2] == (fact.process, fact.life)]:
            self._never_ended(fact.at, fact.process, self._open.pop(owner), "when it ended")

    def _crashed(self, fact: ProcessCrashed) -> None:
        for owner in [one for one in self._open if one[:2] == (fact.process, fact.life)]:
            del self._open[owner]

    def _never_ended(self, at: float, process: str, epoch: int, when: str) -> None:
        self.accuse(at, f"the partitions of epoch {epoch} of {process} had not ended {when}")


def _owner(fact: Told) -> _Owner:
    return fact.process, fact.life, fact.event.group_id
