"""Judges any group protocol by the invariants that do not depend on it.

The invariants are those of ``checks``, by the same numbers, in words that do not mention member
ids, generations or requests of the classic protocol. A history of the classic protocol is judged by
both. What a protocol breaks is a finding about it.

A program that was frozen may process the batch that it holds when it thaws: no protocol can take it
back, and none is blamed for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.broker.groups.responses import OffsetsCommitted
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation import history
from kgroup.testing.simulation.checks import Violation
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.schemes.owners import Life, Owners
from kgroup.types import TopicPartition

INVARIANTS: Final[Mapping[int, str]] = {
    2: "No program is handed or processes records of a partition that it has given up, or that"
    " another program has taken since.",
    4: "No offset is stored for a program after another has taken the partition.",
    6: "An owner starts exactly at the offset that was stored last.",
    7: "No stored offset passes a record that has not been processed, and at the end every record"
    " is processed.",
    8: "No record is handed out again once an offset after it was stored.",
    12: "After the last fault, every partition has exactly one owner again.",
}
"""By the number of the simulator's invariant."""


@final
class Judge:
    """Reads a history once; `violations` has what was found, in the order of time."""

    def __init__(self) -> None:
        self.violations: Final[list[Violation]] = []
        self.owners: Final = Owners()
        self.processed = 0
        """How many records were processed, counted each time."""
        self.twice = 0
        """How often a record was processed that had been processed before."""
        self.shared: Final[dict[TopicPartition, float]] = {}
        """For each partition the seconds for which a former owner went on beside the next."""
        self._taken_at: Final[dict[TopicPartition, float]] = {}
        self._taken_by: Final[dict[TopicPartition, str]] = {}
        self._shared_until: Final[dict[TopicPartition, float]] = {}
        self._thawed: Final[dict[Life, dict[TopicPartition, int]]] = {}
        self._handed: Final[dict[Life, dict[TopicPartition, int]]] = defaultdict(dict)
        self._stored: Final[dict[TopicPartition, int]] = {}
        self._highest: Final[dict[TopicPartition, int]] = {}
        self._done: Final[dict[TopicPartition, set[int]]] = defaultdict(set)
        self._upto: Final[dict[TopicPartition, int]] = {}
        self._reported: Final[dict[tuple[object, ...], None]] = {}
        self._handlers: Final[dict[type[HistoryEntry], list[Callable[[Any], None]]]] = {}
        own: Mapping[type[HistoryEntry], Callable[[Any], None]] = {
            history.ProcessThawed: self._thaw,
            history.HandedOut: self._handed_out,
            history.Processed: self._processed,
            history.OffsetStored: self._offset_stored,
            history.RequestHandled: self._request_handled,
            history.FinalGroupState: self._at_the_end,
        }
        after: Mapping[type[HistoryEntry], Callable[[Any], None]] = {
            history.PartitionsTaken: self._taken,
            history.EventReported: self._event,
        }
        for table in (own, self.owners.handlers, after):
            for kind, handle in table.items():
                self._handlers.setdefault(kind, []).append(handle)

    def read(self, entries: Iterable[HistoryEntry]) -> None:
        """Read entries, in their order."""
        for entry in entries:
            for handle in self._handlers.get(type(entry), ()):
                handle(entry)

    def _report(self, number: int, at: float, what: str, *once: object) -> None:
        """Report a violation; the same one only once."""
        key = (number, *once)
        if key not in self._reported:
            self._reported[key] = None
            self.violations.append(Violation(number=number, at=at, what=what))

    # Owners.

    def _thaw(self, entry: history.ProcessThawed) -> None:
        life = entry.process, entry.life
        self._thawed[life] = dict(self._handed[life])

    def _event(self, entry: history.EventReported) -> None:
        if self.owners.takes(entry):
            self._begun((entry.process, entry.life), entry.at)

    def _taken(self, entry: history.PartitionsTaken) -> None:
        self._begun((entry.process, entry.life), entry.at)

    def _begun(self, life: Life, at: float) -> None:
        for partition, start in self.owners.owned[life].items():
            self._taken_at[partition], self._taken_by[partition] = at, life[0]
            stored = self._stored.get(partition, 0)
            if start != stored:
                self._report(
                    6,
                    at,
                    f"{life[0]} starts {partition} at {start}, but the stored offset is {stored}",
                    life,
                    partition,
                    at,
                )

    def _acts(self, entry: history.HandedOut | history.Processed, offset: int) -> None:
        """A program is handed or has processed a record: it should be the last to take it."""
        life, partition = (entry.process, entry.life), entry.partition
        latest = self.owners.latest(partition)
        if latest == life:
            return
        held = self._thawed.get(life, {}).get(partition, 0)
        if isinstance(entry, history.Processed) and offset < held:
            return
        taken_at = self._taken_at.get(partition, 0.0)
        if latest is not None:
            begun = max(self._shared_until.get(partition, 0.0), taken_at)
            self.shared[partition] = self.shared.get(partition, 0.0) + entry.at - begun
            self._shared_until[partition] = entry.at
        did = "was handed" if isinstance(entry, history.HandedOut) else "processed"
        whose = "it had given up" if latest is None else f"{latest[0]} has taken"
        self._report(
            2,
            entry.at,
            f"{entry.process} {did} the record at offset {offset} of {partition}, which {whose}",
            life,
            partition,
            taken_at,
        )

    def _handed_out(self, entry: history.HandedOut) -> None:
        partition = entry.partition
        self._acts(entry, entry.first)
        self._handed[entry.process, entry.life][partition] = entry.next_offset
        highest = self._highest.get(partition, 0)
        if entry.first < highest:
            self._report(
                8,
                entry.at,
                f"{entry.process} got the record at offset {entry.first} of {partition}, although"
                f" {highest} had been stored",
                partition,
                entry.first,
                entry.at,
            )

    def _processed(self, entry: history.Processed) -> None:
        self._acts(entry, entry.offset)
        done, partition = self._done[entry.partition], entry.partition
        upto = self._upto.get(partition, 0)
        self.processed += 1
        if entry.offset < upto or entry.offset in done:
            self.twice += 1
        done.add(entry.offset)
        while upto in done:
            done.remove(upto)
            upto += 1
        self._upto[partition] = upto

    # Offsets.

    def _request_handled(self, entry: history.RequestHandled) -> None:
        request, response = entry.request, entry.response
        if not isinstance(request, OffsetCommit) or not isinstance(response, OffsetsCommitted):
            return
        good = {
            (one.topic, one.partition) for one in response.partitions if one.error is ErrorCode.NONE
        }
        for one in request.offsets:
            if (one.topic, one.partition) in good:
                partition = TopicPartition(one.topic, one.partition)
                self._store(entry.at, entry.process, partition, one.offset)

    def _offset_stored(self, entry: history.OffsetStored) -> None:
        self._store(entry.at, entry.process, entry.partition, entry.offset)

    def _store(self, at: float, process: str, partition: TopicPartition, offset: int) -> None:
        taker = self._taken_by.get(partition, process)
        if taker != process:
            before = self._stored.get(partition, 0)
            back = f", back from {before}" if offset < before else ""
            self._report(
                4,
                at,
                f"the offset {offset} of {partition} was stored for {process}{back}, although"
                f" {taker} has taken it",
                process,
                partition,
                at,
            )
        upto = self._upto.get(partition, 0)
        if offset > upto:
            self._report(
                7,
                at,
                f"{process} stored {partition} at {offset}, but the record at offset {upto} has"
                " not been processed",
                partition,
                offset,
            )
        self._stored[partition] = offset
        self._highest[partition] = max(offset, self._highest.get(partition, 0))

    def _at_the_end(self, entry: history.FinalGroupState) -> None:
        if not self.owners.are_settled():
            self._report(12, entry.at, "not every partition has exactly one owner")
        for partition, end in sorted(entry.ends.items()):
            upto = self._upto.get(partition, 0)
            if upto < end and self.owners.latest(partition) is not None:
                self._report(
                    7,
                    entry.at,
                    f"{partition} ends at {end}, but the record at offset {upto} has not been"
                    " processed",
                    partition,
                    "end",
                )


def judge(entries: Iterable[HistoryEntry]) -> Judge:
    """Read a whole history."""
    found = Judge()
    found.read(entries)
    return found
