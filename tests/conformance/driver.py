"""What a file of scenarios imports: the group that a scenario acts on, and the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.conformance.clients import Group

__all__ = ["SCENARIOS", "Group", "Scenario", "scenario"]

Play = Callable[[Group], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What one file of scenarios has registered under a name."""

    name: str
    suite: str
    """The file that it is from: `open` for `scenarios_open`."""
    area: str
    broker: str
    """Name of the broker configuration that the scenario needs, a key of `BROKERS`."""
    doc: str
    play: Play


PREFIX: Final = "scenarios_"
"""What the name of a file of scenarios begins with."""
SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(area: str, *, broker: str = "base") -> Callable[[Play], Play]:
    """Register an async function as a scenario; its docstring says what must hold."""

    def register(play: Play) -> Play:
        name = play.__name__
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        doc = " ".join((play.__doc__ or "").split())
        suite = play.__module__.rpartition(".")[2].removeprefix(PREFIX)
        SCENARIOS[name] = Scenario(
            name=name, suite=suite, area=area, broker=broker, doc=doc, play=play
        )
        return play

    return register
