"""How a group's leader divides the partitions of the group's topics among the members.

``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky`` give each member exactly what
Kafka's Java assignors of the same names give it, so that in a mixed group it makes no difference
which client leads (docs/assignors.md has the exceptions). A custom assignor is any object with a
``name`` and an ``assign`` (``kgroup.interfaces.Assignor``); ``kgroup.assignors.validation`` checks
its result.

docs/architecture.md says how to add a built-in assignor. Its name is also in ``kgroup.config``,
which is a layer below this package and cannot import it.

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
from kgroup.errors import UsageError, short_repr
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
"""The built-in assignors by name."""


def resolve(assignors: Iterable[str | Assignor]) -> dict[str, Assignor]:
    """Return assignors by name, in the given order, which is that of preference.

    Args:
        assignors: names of built-in assignors, and custom assignors.

    Raises:
        UsageError: no built-in assignor has such a name, or two assignors have the same name.
        ConfigError: a custom assignor lacks a valid ``name`` or ``assign``.
    """
    resolved: dict[str, Assignor] = {}
    for given in assignors:
        if isinstance(given, str):
            if given not in BUILTIN:
                raise UsageError(
                    f"no assignor {short_repr(given)} is built in; {', '.join(BUILTIN)} are"
                )
            name, assignor = given, BUILTIN[given]
        else:
            name, assignor = check_assignor("assignors", given), given
        if name in resolved:
            raise UsageError(f"two assignors have the name {name!r}")
        resolved[name] = assignor
    return resolved


def all_cooperative(assignors: Iterable[Any]) -> bool:
    """Whether a member that offers these keeps its partitions while the group rebalances.

    It does if all of them are cooperative. One eager assignor makes the member eager, whichever
    assignor the group chooses. So a group can change from eager to cooperative (KIP-429): first
    every member offers both, then every member offers only the cooperative one.
    """
    return all(getattr(assignor, "cooperative", False) for assignor in assignors)


def user_data_of(assignor: Any, claim: Claim | None) -> bytes | None:
    """Return what a member sends to the leader's assignor with its subscription, or None.

    Args:
        assignor: an assignor that the member offers.
        claim: the member's last assignment, or None if it has had none.

    Raises:
        UsageError: the assignor returned neither bytes nor None.
        Exception: whatever a custom assignor raises.
    """
    method = getattr(assignor, "user_data", None)
    if method is None:
        return None
    data = method(None, -1) if claim is None else method(claim.owned, claim.generation_id)
    if data is None:
        return None
    if not isinstance(data, bytes | bytearray | memoryview):
        # bytes() would turn a number into that many zeros, and a list into its items.
        raise UsageError(
            f"user_data() of {short_repr(assignor)} returned {short_repr(data)};"
            " it must return bytes or None"
        )
    return bytes(data)


def call_on_assignment(
    assignor: Any, partitions: Sequence[TopicPartition], generation_id: int
) -> None:
    """Call the assignor's ``on_assignment``, if it has one."""
    hook = getattr(assignor, "on_assignment", None)
    if hook is not None:
        hook(partitions, generation_id)
