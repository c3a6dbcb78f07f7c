"""Views shared by all checks: the logs, the groups and the programs, as the history shows them.

A view handles each entry before any check does. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

from kgroup.testing.simulation.checks.groups import GroupsView
from kgroup.testing.simulation.checks.logs import LogsView
from kgroup.testing.simulation.checks.programs import ProgramsView
from kgroup.testing.simulation.history import EventReported, HistoryEntry, RequestHandled

Kind = type[object] | str
"""A kind of entry: the api of a handled request, the class of a reported event, or
the class of any other entry."""


def kind_of(entry: HistoryEntry) -> Kind:
    """The kind by which an entry is dispatched."""
    kind = type(entry)
    if kind is RequestHandled:
        return entry.api  # type: ignore[attr-defined, no-any-return]
    if kind is EventReported:
        return type(entry.event)  # type: ignore[attr-defined]
    return kind


@final
class Views:
    """The views of one simulation."""

    def __init__(self) -> None:
        self.logs: Final = LogsView()
        self.groups: Final = GroupsView()
        self.programs: Final = ProgramsView(self.groups, self.logs)

    @property
    def handlers(self) -> tuple[Mapping[Kind, Callable[[Any], None]], ...]:
        """For each view the handler for each kind of entry."""
        return self.logs.handlers, self.groups.handlers, self.programs.handlers
