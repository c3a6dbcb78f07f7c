"""What an assignor may have beside ``assign``: user data, a hook, and cooperation.

They are looked for by name, so that a custom assignor has only what it needs.

Source: Kafka's ``ConsumerPartitionAssignor`` (``subscriptionUserData``, ``onAssignment``,
``supportedProtocols``) and ``ConsumerCoordinator`` (which protocol a member follows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kgroup.errors import UsageError, shown
from kgroup.types import Claim, TopicPartition


def cooperate(assignors: Iterable[Any]) -> bool:
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


def tell_of_assignment(
    assignor: Any, partitions: Sequence[TopicPartition], generation_id: int
) -> None:
    """Call the assignor's ``on_assignment``, if it has one."""
    hook = getattr(assignor, "on_assignment", None)
    if hook is not None:
        hook(partitions, generation_id)
