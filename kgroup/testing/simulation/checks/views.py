"""What all checks look at: logs as written, groups as coordinators show them, programs as told.

A view only remembers what was seen. It sees each fact before any check does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

from kgroup.testing.simulation.checks.groups import Groups
from kgroup.testing.simulation.checks.logs import Logs
from kgroup.testing.simulation.checks.programs import ProgramViews
from kgroup.testing.simulation.history import Fact, Judged, Told

Kind = type[object] | str
"""A kind of fact: the api of a ``Judged``, the event's class of a ``Told``, else its class."""


def kind_of(fact: Fact) -> Kind:
    """By what a fact is dispatched."""
    kind = type(fact)
    if kind is Judged:
        return fact.api  # type: ignore[attr-defined, no-any-return]
    if kind is Told:
        return type(fact.event)  # type: ignore[attr-defined]
    return kind


@final
class Views:
    """The views of one simulation."""

    def __init__(self) -> None:
        self.logs: Final = Logs()
        self.groups: Final = Groups()
        self.programs: Final = ProgramViews(self.groups, self.logs)

    @property
    def reactions(self) -> tuple[Mapping[Kind, Callable[[Any], None]], ...]:
        """What each view does with each kind of fact."""
        return self.logs.reactions, self.groups.reactions, self.programs.reactions
