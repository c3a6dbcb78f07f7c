"""The position of each partition of one generation: where it starts, and what may be committed.

Everything that kgroup knows of a partition's offsets in a generation is here, except the next
offset to fetch, which the record source knows:

- the *start*: from the program's store, the committed offset, or what ``auto_offset_reset`` gave; a
  partition without one is *unlocated* until its first reader finds it;
- the *lower bound* of commits: the start, then the last commit that was acknowledged;
- the *upper bound* of commits: the offset after the last record that was handed out;
- the *leader epochs* of what was handed out (``read_epochs``), which commits carry.

A seek sets the lower bound and can only raise the upper one; a reset sets both. If a batch does not
reach the program, the upper bound is set back. The coordinator checks no bounds: without these
checks, a mistake in a handler would silently repeat records, or make the group skip records that no
member has read. Programs that read by other means (``Generation.offsets``) have no upper bound,
because only they know how far they have read.

If the member has kept a partition, its upper bound of the previous generation still counts: the
program may hold results of records that were handed out then, and may commit them now.

This module remembers and checks. It sends nothing, waits for nothing, and threads that read call
it. What finds a start, by requests, is `StartFinder` (``start_finder``), which keeps no position:
it enters what it finds here and in the record source. These two keep one each because they differ:
the source fetches ahead of the program, and commits are checked against what the program was given.

INVARIANTS: no commit of the program is sent that is behind its lower bound or past its upper bound.
(``late_commit_watcher`` repeats one that was within them.) A commit is checked against the lower
bound that its caller knew: if a seek moved the bound after the call, the commit is not refused
because of the seek, and the response to the commit does not undo the seek.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Lock
from types import MappingProxyType
from typing import TypeAlias, final

import attrs

from kgroup import arguments
from kgroup.errors import (
    ArgumentError,
    NotOwnedError,
    OffsetBehindCommitError,
    OffsetBeyondReadError,
)
from kgroup.generation.read_epochs import ReadEpochs
from kgroup.interfaces import Batch
from kgroup.types import (
    Assignment,
    Membership,
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
    partition_fault,
)

OffsetRange: TypeAlias = tuple[int, int]
"""The first offset, and the one after the last."""


@final
@attrs.frozen
class BatchInHand:
    """A batch that the program has, or consecutive ones that it had, without their records.

    Attributes:
        partition: its partition.
        start_offset: where it begins.
        next_offset: the offset after it.
        moves: how often seeks and resets had moved the partition when it was handed out.
    """

    partition: TopicPartition
    start_offset: int
    next_offset: int
    moves: int


@final
class Positions:
    """The positions of one generation; checks commits before anything is sent.

    Args:
        membership: the membership of the generation.
        read_before: the upper bounds of the generation before.
        epochs_before: the leader epochs of what it has handed out.

    Attributes:
        start_offsets: for each partition the offset at which it starts, as far as that could be
            found before the hand-over. What is found later, and seeks, do not change it.
        unlocated: the partitions whose start is not known, and which the program has not sought.
        seeks: for each partition, how often the program has sought there; any thread may read it.
        read_epochs: the leader epochs of what was handed out; before `begin`, in the generation
            before.
    """

    def __init__(
        self,
        membership: Membership,
        read_before: Mapping[TopicPartition, int] | None = None,
        epochs_before: ReadEpochs | None = None,
    ) -> None:
        self._membership = membership
        self._assignment = Assignment(())
        self._lower_bounds: dict[TopicPartition, int] = {}
        self._moves: Counter[TopicPartition] = Counter()
        self.seeks: Counter[TopicPartition] = Counter()
        self._upper_bounds = dict(read_before or {})
        self._least_upper_bounds: dict[TopicPartition, int] = {}
        """The upper bounds at the beginning, or after the last seek or reset."""
        self._finished: dict[TopicPartition, BatchInHand] = {}
        """What the program is done with; what it was before a seek does not count any more."""
        self._reading = Lock()
        self._without_upper_bound: set[TopicPartition] = set()
        self._in_transactions: set[TopicPartition] = set()
        self.read_epochs = epochs_before or ReadEpochs()
        self.start_offsets: Mapping[TopicPartition, int] = {}
        self.unlocated: set[TopicPartition] = set()

    def begin(
        self,
        assignment: Assignment,
        start: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Set the partitions, and the starts that could be found before the hand-over.

        Args:
            assignment: the partitions.
            start: the starts.
            leader_epochs: the leader epochs of the records before starts, if they are known.
        """
        self._assignment = assignment
        self.read_epochs = self.read_epochs.next(assignment.kept, start, leader_epochs)
        self._lower_bounds = dict(start)
        self._upper_bounds = {
            name: offset for name, offset in self._upper_bounds.items() if name in assignment
        }
        self._least_upper_bounds = dict(self._upper_bounds)
        self.start_offsets = start
        self.unlocated = set(assignment).difference(start)

    def forget_read(self, partition: TopicPartition) -> None:
        """Before `begin`: what the generation before has read is not in the log any more."""
        self._upper_bounds.pop(partition, None)
        self.read_epochs.forget(partition)

    def lower_bound(self, partition: TopicPartition) -> int:
        """The lower bound of a partition's commits; 0 if it is not known."""
        return self._lower_bounds.get(partition, 0)

    def committed_unlocated(self, partition: TopicPartition) -> int | None:
        """What was committed of a partition whose start is not known; None if nothing was."""
        return self._lower_bounds.get(partition) if partition in self.unlocated else None

    def moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often seeks and resets moved each lower bound; each commit records it when called."""
        return {partition: self._moves[partition] for partition in partitions}

    @property
    def upper_bounds(self) -> Mapping[TopicPartition, int]:
        """For each partition that was read, the offset after the last record handed out."""
        return self._upper_bounds

    def handed_out(self, batch: Batch) -> None:
        """Record that the program was given a batch.

        A thread that reads calls it too, while the event loop may move the same partition.
        """
        with self._reading:
            self._raise_upper_bound(batch.partition, batch.next_offset)
            self.read_epochs.handed_out(batch)

    def given_back(self, batch: Batch) -> None:
        """Record that the last batch of a partition did not reach the program."""
        partition = batch.partition
        with self._reading:
            if self._upper_bounds.get(partition) == batch.next_offset:
                least = self._least_upper_bounds.get(partition, 0)
                self._upper_bounds[partition] = max(batch.start_offset, least)

    def batch_of(self, batch: Batch) -> BatchInHand:
        """What `finished` needs to know of a batch that the program was given; any thread."""
        moves = self._moves[batch.partition]
        return BatchInHand(batch.partition, batch.start_offset, batch.next_offset, moves)

    def finished(self, batch: BatchInHand) -> None:
        """Record that the program is done with a batch; it does not count if it sought meanwhile.

        Any thread may call it. It takes no lock: a signal handler or a finalizer that interrupts it
        may wait for the event loop, which would wait for the lock.
        """
        if batch.moves != self._moves[batch.partition]:
            return
        before = self._finished.get(batch.partition)
        if before is not None and before.moves == batch.moves:
            start, end = before.start_offset, batch.next_offset
            batch = BatchInHand(batch.partition, start, end, batch.moves)
        self._finished[batch.partition] = batch

    @property
    def finished_ranges(self) -> Mapping[TopicPartition, OffsetRange]:
        """For each partition the records with which the program is done, since its last seek."""
        return {
            name: (batch.start_offset, batch.next_offset)
            for name, batch in self._finished.copy().items()
            if batch.moves == self._moves[name]
        }

    def committed_in_transaction(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that a producer commits these: this member does not know how far."""
        self._in_transactions.update(partitions)

    def is_committed(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the records before this offset are committed, as far as it is known."""
        return offset <= self.lower_bound(partition) or partition in self._in_transactions

    def lift_upper_bounds(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the upper bound of these, because the program reads them by other means."""
        self._without_upper_bound.update(partitions)

    def check(
        self,
        offsets: Offsets,
        known: Mapping[TopicPartition, int] | None = None,
        *,
        beyond_read: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets in the form in which they are sent, if all can be committed.

        Args:
            offsets: as the caller gave them.
            known: the `moves` when the caller committed; the current ones by default.
            beyond_read: whether an offset may be past the upper bound.

        Raises:
            ArgumentError: ``offsets`` does not map partitions to offsets.
            NotOwnedError: a partition is not of this generation.
            OffsetBehindCommitError: an offset is behind the lower bound.
            OffsetBeyondReadError: an offset is past the upper bound.
        """
        checked = arguments.offsets(offsets)
        for partition, position in checked.items():
            self.check_owned(partition)
            moved = known is not None and known[partition] < self._moves[partition]
            if position.offset < self.lower_bound(partition) and not moved:
                raise OffsetBehindCommitError(
                    f"{partition}: offset {position.offset} is behind"
                    f" {self.lower_bound(partition)}, the last commit or start position"
                    f" ({self._membership}); nothing was sent. To go back on purpose, seek first,"
                    " and commit nothing further on until the records are read again."
                )
            if not beyond_read:
                self._check_upper_bound(partition, position.offset)
        with self._reading:
            return {name: self.read_epochs.added_to(name, at) for name, at in checked.items()}

    def check_owned(self, partition: TopicPartition) -> None:
        """Raise NotOwnedError unless the generation owns the partition.

        Raises:
            ArgumentError: the argument is no partition.
        """
        if arguments.partition("partition", partition) not in self._assignment:
            if fault := partition_fault(partition):
                raise ArgumentError("partition", partition, f"no cluster can have it: {fault}")
            owned = ", ".join(map(str, self._assignment)) or "nothing"
            raise NotOwnedError(
                f"this generation does not own {partition}: {self._membership} owns {owned};"
                " nothing was sent. Commit, seek and pause only partitions of generation.assignment"
            )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Count a seek of the program's, and move the partition."""
        self.seeks[partition] += 1
        self.move(partition, offset)

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Set the lower bound after a seek; the upper bound is raised to it."""
        self._lower_bounds[partition] = offset
        self.unlocated.discard(partition)
        with self._reading:
            self._moves[partition] += 1
            self.read_epochs.forget(partition)
            self._raise_upper_bound(partition, offset)
            self._least_upper_bounds[partition] = self._upper_bounds[partition]

    def reset(self, partition: TopicPartition, offset: int) -> None:
        """Set both bounds after a reset: offsets read before may belong to another log."""
        self._upper_bounds.pop(partition, None)
        self.move(partition, offset)

    def raise_lower_bounds(
        self, offsets: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
    ) -> None:
        """Raise lower bounds to committed offsets, except those moved since the commit was called.

        Args:
            offsets: what was committed.
            known: `moves` when the commit was called.
        """
        for partition, offset in offsets.items():
            if known[partition] == self._moves[partition]:
                self._lower_bounds[partition] = max(offset, self.lower_bound(partition))

    def _raise_upper_bound(self, partition: TopicPartition, offset: int) -> None:
        self._upper_bounds[partition] = max(offset, self._upper_bounds.get(partition, 0))

    def _check_upper_bound(self, partition: TopicPartition, offset: int) -> None:
        if partition in self._without_upper_bound:
            return
        read = self._upper_bounds.get(partition)
        upper_bound = max(self.lower_bound(partition), 0 if read is None else read)
        if offset <= upper_bound:
            return
        nothing = f"it was given none yet, and the partition starts at {upper_bound}"
        so_far = nothing if read is None else f"it was given the records up to {upper_bound} only"
        raise OffsetBeyondReadError(
            f"{partition}: offset {offset} is past the records that the program was given: {so_far}"
            f" ({self._membership}); nothing was sent. No member would read the records in between."
            " Commit batch.next_offset, or the last record's offset + 1. To skip"
            f" on purpose, seek to {offset} first, or commit with beyond_read=True.",
            partition,
            offset,
            upper_bound,
        )
