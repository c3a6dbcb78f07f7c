"""The floor under each owned partition: no commit goes behind it.

The floor is the start position, then the last commit that was acknowledged; a seek or a reset
moves it. The coordinator checks neither, so a handler's mistake would silently be a repetition.

INVARIANT: a commit is held to the floor as its caller knew it. One that was asked for before the
floor was moved is neither refused because of the move, nor does its answer undo the move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import final

from kgroup.errors import NotOwnedError, OffsetBehindFloorError
from kgroup.model import Assignment, Membership, OffsetAndMetadata, Offsets, TopicPartition


@final
class Floors:
    """Checks commits of one generation before anything is sent."""

    def __init__(
        self,
        membership: Membership,
        assignment: Assignment,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        self._membership = membership
        self._assignment = assignment
        self._floors = dict(positions)
        self._moves: Counter[TopicPartition] = Counter()

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._floors.get(partition, 0)

    def moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often each floor was moved so far: what a caller that asks now knows."""
        return {partition: self._moves[partition] for partition in partitions}

    def check(
        self, offsets: Offsets, known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets as what is sent, or the one error that says what is wrong with them.

        Args:
            offsets: as the caller gave them.
            known: the moves that the caller knew of; all of them by default.

        Raises:
            NotOwnedError: a partition is not of this generation.
            OffsetBehindFloorError: an offset is behind the floor.
            TypeError: an offset is neither an int nor an `OffsetAndMetadata`.
            ValueError: an offset is negative.
        """
        checked = {}
        for partition, given in offsets.items():
            self.check_owned(partition)
            position = _position(partition, given)
            moved = known is not None and known[partition] < self._moves[partition]
            if position.offset < self[partition] and not moved:
                raise OffsetBehindFloorError(
                    f"{partition}: offset {position.offset} is behind {self[partition]}, the last"
                    f" commit or start position ({self._membership}); nothing was sent. To go"
                    " back on purpose, seek first."
                )
            checked[partition] = position
        return checked

    def check_owned(self, partition: TopicPartition) -> None:
        """Raise NotOwnedError unless the generation owns the partition."""
        if partition not in self._assignment:
            owned = ", ".join(map(str, self._assignment)) or "nothing"
            raise NotOwnedError(
                f"{partition} is not of this generation: {self._membership} owns {owned};"
                " nothing was sent"
            )

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Set the floor anew, after a seek or a reset."""
        self._floors[partition] = offset
        self._moves[partition] += 1

    def raise_to(
        self, offsets: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
    ) -> None:
        """Offsets were committed by a caller that knew of so many moves."""
        for partition, offset in offsets.items():
            if known[partition] == self._moves[partition]:
                self._floors[partition] = max(offset, self[partition])


def _position(partition: TopicPartition, given: object) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        return given
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{partition}: commit takes an int or an OffsetAndMetadata, not {given!r}")
    if not 0 <= given < 2**63:
        raise ValueError(f"{partition}: offset {given} is not from 0 to 2**63-1")
    return OffsetAndMetadata(given)
