"""How a group's leader divides the partitions of the group's topics among the members.

``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky`` give each member exactly what
Kafka's Java assignors of the same names give it, so that in a mixed group it makes no difference
which client leads. A custom assignor is any object with a ``name`` and an ``assign``
(``kgroup.interfaces.Assignor``); ``kgroup.assignors.validation`` checks its result.

An assignor may also have ``user_data``, ``on_assignment`` and ``cooperative``. They are optional
and found by name, so that a custom assignor defines only what it needs.

Source: Kafka's ``ConsumerPartitionAssignor`` (``subscriptionUserData``, ``onAssignment``,
``supportedProtocols``) and ``ConsumerCoordinator`` (which protocol a member follows).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kgroup.assignors.range import RangeAssignor
from kgroup.assignors.roundrobin import RoundRobinAssignor
from kgroup.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kgroup.errors import UsageError, shown
from kgroup.extension_checks import check_assignor
from kgroup.interfaces import Assignor
from kgroup.types import Claim, TopicPartition

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


def all_cooperative(assignors: Iterable[Any]) -> bool:
    """Whether a member that offers these keeps what it owns while the group rebalances.

    It does if all of them are cooperative; one eager among them makes it eager, whichever the
    group chooses. That is how a group goes from eager to cooperative (KIP-429): first every
    member offers both, then every member offers the cooperative one alone.
    """
    return all(getattr(assignor, "cooperative", False) for assignor in assignors)


def user_data_of(assignor: Any, claim: Claim | None) -> bytes | None:
    """What a member sends along with an assignor when it joins; None where it has nothing to say.

    Args:
        assignor: one of those that the member offers.
        claim: what the member was assigned last, or None if it never was.

    Raises:
        UsageError: the assignor gives something else than bytes or None.
        Exception: whatever a custom assignor raises.
    """
    tell = getattr(assignor, "user_data", None)
    if tell is None:
        return None
    data = tell(None, -1) if claim is None else tell(claim.owned, claim.generation_id)
    if data is None:
        return None
    if not isinstance(data, bytes | bytearray | memoryview):
        # bytes() of a number would be so many zeros, and of a list whatever it happens to hold.
        raise UsageError(
            f"user_data() of {shown(assignor)} gave {shown(data)}: it must give bytes, or None"
        )
    return bytes(data)


def call_on_assignment(
    assignor: Any, partitions: Sequence[TopicPartition], generation_id: int
) -> None:
    """Call the assignor's ``on_assignment``, if it has one."""
    hook = getattr(assignor, "on_assignment", None)
    if hook is not None:
        hook(partitions, generation_id)
