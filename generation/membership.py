"""What a generation says of its member: who it is, and in which generation of the group.

The generation of an event loop and that of threads both tell it in this way; what becomes of the
membership is theirs.

INVARIANT: none of it changes while the generation is there, so that any thread may read it.
"""

from __future__ import annotations

from kgroup.types import Membership


class MembershipView:
    """A membership, as the holder of a generation reads it. Made by the class that is one.

    Args:
        membership: what the member was told when its JoinGroup was answered.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def group_id(self) -> str:
        """The group."""
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator knows this member by."""
        return self._membership.member_id

    @property
    def group_instance_id(self) -> str | None:
        """The static identity, or None."""
        return self._membership.group_instance_id

    @property
    def generation_id(self) -> int:
        """The coordinator's id of the generation; it can repeat, see `epoch`."""
        return self._membership.generation_id

    @property
    def epoch(self) -> int:
        """kgroup's own number of the generation; strictly rising within a ConsumerGroup."""
        return self._membership.epoch

    @property
    def leader(self) -> bool:
        """Whether this member computed the assignment."""
        return self._membership.leader

    @property
    def assignor(self) -> str:
        """The name of the assignor that the group chose."""
        return self._membership.assignor
