"""The floor and the ceiling of each owned partition: no commit goes behind one or past the other.

The floor is the start position, then the last commit that was acknowledged; a seek or a reset
moves it. The ceiling is the next offset after the last record that was handed out; reading and a
seek raise it. The coordinator checks neither: a handler's mistake would silently repeat records,
or make the group skip records that no member ever read. Programs that read by other means
(``Generation.offsets``) have no ceiling, because only they know how far they are.

What was handed out in the generation before counts where the member has kept the partition: its
handlers may have carried over what they made of it.

INVARIANT: a commit is held to the floor as its caller knew it. One that was asked for before the
floor was moved is neither refused because of the move, nor does its answer undo the move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import final

from kgroup import arguments
from kgroup.errors import NotOwnedError, OffsetBehindFloorError, OffsetBeyondReadError
from kgroup.types import Assignment, Membership, OffsetAndMetadata, Offsets, TopicPartition


@final
class CommitBounds:
    """Checks commits of one generation before anything is sent."""

    def __init__(
        self,
        membership: Membership,
        assignment: Assignment,
        positions: Mapping[TopicPartition, int],
        read_before: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._membership = membership
        self._assignment = assignment
        self._floors = dict(positions)
        self._moves: Counter[TopicPartition] = Counter()
        self._read = {
            name: offset for name, offset in (read_before or {}).items() if name in assignment
        }
        self._without_ceiling: set[TopicPartition] = set()

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._floors.get(partition, 0)

    def moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often each floor was moved so far: what a caller that asks now knows."""
        return {partition: self._moves[partition] for partition in partitions}

    @property
    def read(self) -> Mapping[TopicPartition, int]:
        """The next offset after the last record handed out, of partitions that were read."""
        return self._read

    def handed_out(self, partition: TopicPartition, next_offset: int) -> None:
        """Records up to this offset were given to the program."""
        self._read[partition] = max(next_offset, self._read.get(partition, 0))

    def lift(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these have no ceiling: the program reads them by other means."""
        self._without_ceiling.update(partitions)

    def check(
        self,
        offsets: Offsets,
        known: Mapping[TopicPartition, int] | None = None,
        *,
        beyond_read: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets as what is sent, or the one error that says what is wrong with them.

        Args:
            offsets: as the caller gave them.
            known: the moves that the caller knew of; all of them by default.
            beyond_read: whether an offset may be past the ceiling.

        Raises:
            ArgumentError: these are no offsets of partitions.
            NotOwnedError: a partition is not of this generation.
            OffsetBehindFloorError: an offset is behind the floor.
            OffsetBeyondReadError: an offset is past the ceiling.
        """
        checked = arguments.offsets(offsets)
        for partition, position in checked.items():
            self.check_owned(partition)
            moved = known is not None and known[partition] < self._moves[partition]
            if position.offset < self[partition] and not moved:
                raise OffsetBehindFloorError(
                    f"{partition}: offset {position.offset} is behind {self[partition]}, the last"
                    f" commit or start position ({self._membership}); nothing was sent. To go"
                    " back on purpose, seek first."
                )
            if not beyond_read:
                self._check_ceiling(partition, position.offset)
        return checked

    def check_owned(self, partition: TopicPartition) -> None:
        """Raise NotOwnedError unless the generation owns the partition.

        Raises:
            ArgumentError: it is no partition.
        """
        if arguments.partition("partition", partition) not in self._assignment:
            owned = ", ".join(map(str, self._assignment)) or "nothing"
            raise NotOwnedError(
                f"{partition} is not of this generation: {self._membership} owns {owned};"
                " nothing was sent"
            )

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Set the floor after a seek; the ceiling is raised to it."""
        self._floors[partition] = offset
        self._moves[partition] += 1
        self.handed_out(partition, offset)

    def reset(self, partition: TopicPartition, offset: int) -> None:
        """Set both after a reset: offsets that were read before may be of another log."""
        self._read.pop(partition, None)
        self.move(partition, offset)

    def raise_to(
        self, offsets: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
    ) -> None:
        """Offsets were committed by a caller that knew of so many moves."""
        for partition, offset in offsets.items():
            if known[partition] == self._moves[partition]:
                self._floors[partition] = max(offset, self[partition])

    def _check_ceiling(self, partition: TopicPartition, offset: int) -> None:
        if partition in self._without_ceiling:
            return
        read = self._read.get(partition)
        ceiling = max(self[partition], 0 if read is None else read)
        if offset <= ceiling:
            return
        nothing = f"nothing was read yet, and it starts at {ceiling}"
        so_far = nothing if read is None else f"records were handed out up to {ceiling} only"
        raise OffsetBeyondReadError(
            f"{partition}: offset {offset} is past what this member was given to read: {so_far}"
            f" ({self._membership}); nothing was sent. The records between would be skipped by"
            " every member. Commit batch.next_offset, or the last record's offset + 1. To skip"
            f" on purpose, seek to {offset} first, or commit with beyond_read=True.",
            partition,
            offset,
            ceiling,
        )
