"""How a leader divides the partitions of the group's topics among its members.

``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky`` give, member by member, what
Kafka's Java assignors of these names give, so that in a mixed group it makes no difference who
leads. A custom one is any object with a
``name`` and an ``assign`` (``kgroup.interfaces.Assignor``); ``check`` looks at what it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kgroup.assignors.cooperative import CooperativeStickyAssignor
from kgroup.assignors.range import RangeAssignor
from kgroup.assignors.roundrobin import RoundRobinAssignor
from kgroup.assignors.sticky import StickyAssignor
from kgroup.errors import UsageError, shown
from kgroup.extension_checks import check_assignor
from kgroup.interfaces import Assignor

BUILTIN: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            RangeAssignor(),
            RoundRobinAssignor(),
            StickyAssignor(),
            CooperativeStickyAssignor(),
        )
    }
)
"""The assignors that go by name."""


def resolve(assignors: Iterable[str | Assignor]) -> dict[str, Assignor]:
    """The assignors themselves, by name, in the order given: that of preference.

    Args:
        assignors: names of built-in ones, and custom ones.

    Raises:
        UsageError: no built-in assignor has that name, or two have the same.
        ConfigError: a custom one is not what an assignor has to be.
    """
    resolved: dict[str, Assignor] = {}
    for given in assignors:
        if isinstance(given, str):
            if given not in BUILTIN:
                raise UsageError(
                    f"no assignor {shown(given)} is built in; {', '.join(BUILTIN)} are"
                )
            name, assignor = given, BUILTIN[given]
        else:
            name, assignor = check_assignor("assignors", given), given
        if name in resolved:
            raise UsageError(f"two assignors have the name {name!r}")
        resolved[name] = assignor
    return resolved
