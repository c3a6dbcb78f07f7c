"""The position of each partition of one generation: where it starts, and what may be committed.

Everything that kgroup knows of a partition's offsets in a generation is here, except the next
offset to fetch, which is the record source's:

- the *start*: the committed offset, or what ``auto_offset_reset`` gave; a partition without one is
  *unlocated* until its first reader finds it;
- the *floor*, which no commit goes behind: the start, then the last commit that was acknowledged;
- the *ceiling*, which no commit goes past: the offset after the last record that was handed out.

A seek or a reset moves the floor, and the ceiling with it. The coordinator checks neither: a
mistake in a handler would silently repeat records, or make the group skip records that no member
has read. Programs that read by other means (``Generation.offsets``) have no ceiling, because only
they know how far they are.

If the member has kept a partition, its ceiling of the previous generation still counts: the program
may hold results of records that were handed out then, and may commit them now.

INVARIANTS: no commit is sent that is behind its floor or past its ceiling. A commit is checked
against the floor as its caller knew it. A commit that was called before the floor was moved is not
refused because of the move, nor does its answer undo the move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import final

from kgroup import arguments
from kgroup.errors import NotOwnedError, OffsetBehindFloorError, OffsetBeyondReadError
from kgroup.types import Assignment, Membership, OffsetAndMetadata, Offsets, TopicPartition


@final
class Positions:
    """The positions of one generation; checks commits before anything is sent.

    Args:
        membership: whose they are.
        read_before: the ceilings of the generation before.

    Attributes:
        start: for each partition the offset at which it starts, as far as it is known.
        unlocated: the partitions whose start is not known, and which the program has not sought.
    """

    def __init__(
        self, membership: Membership, read_before: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self._membership = membership
        self._assignment = Assignment(())
        self._floors: dict[TopicPartition, int] = {}
        self._moves: Counter[TopicPartition] = Counter()
        self._read = dict(read_before or {})
        self._without_ceiling: set[TopicPartition] = set()
        self.start: Mapping[TopicPartition, int] = {}
        self.unlocated: set[TopicPartition] = set()

    def begin(self, assignment: Assignment, start: Mapping[TopicPartition, int]) -> None:
        """The partitions are known, and where they start, as far as that could be found soon."""
        self._assignment = assignment
        self._floors = dict(start)
        self._read = {name: offset for name, offset in self._read.items() if name in assignment}
        self.start = start
        self.unlocated = set(assignment).difference(start)

    def __getitem__(self, partition: TopicPartition) -> int:
        """The floor; 0 where it is not known."""
        return self._floors.get(partition, 0)

    def moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often each floor was moved so far; a commit notes it when it is called."""
        return {partition: self._moves[partition] for partition in partitions}

    @property
    def read(self) -> Mapping[TopicPartition, int]:
        """For each partition that was read, the offset after the last record handed out."""
        return self._read

    def handed_out(self, partition: TopicPartition, next_offset: int) -> None:
        """Records up to this offset were given to the program."""
        self._read[partition] = max(next_offset, self._read.get(partition, 0))

    def lift(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these have no ceiling, because the program reads them by other means."""
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
                f"this generation does not own {partition}: {self._membership} owns {owned};"
                " nothing was sent"
            )

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Set the floor after a seek; the ceiling is raised to it."""
        self._floors[partition] = offset
        self._moves[partition] += 1
        self.unlocated.discard(partition)
        self.handed_out(partition, offset)

    def reset(self, partition: TopicPartition, offset: int) -> None:
        """Set both after a reset: offsets that were read before may be of another log."""
        self._read.pop(partition, None)
        self.move(partition, offset)

    def raise_to(
        self, offsets: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
    ) -> None:
        """Raise floors to committed offsets, except those moved since the commit was called.

        Args:
            offsets: what was committed.
            known: `moves` when the commit was called.
        """
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
        nothing = f"it was given none yet, and the partition starts at {ceiling}"
        so_far = nothing if read is None else f"it was given the records up to {ceiling} only"
        raise OffsetBeyondReadError(
            f"{partition}: offset {offset} is past the records that the program was given: {so_far}"
            f" ({self._membership}); nothing was sent. No member would read the records in between."
            " Commit batch.next_offset, or the last record's offset + 1. To skip"
            f" on purpose, seek to {offset} first, or commit with beyond_read=True.",
            partition,
            offset,
            ceiling,
        )
