"""The account: its figures, and what is wrong with them.

Without I/O. How the figures come about is ``reckoning``'s.
"""

from __future__ import annotations

from typing import Final, final

import attrs


@final
@attrs.frozen(kw_only=True)
class AuditReport:
    """The figures.

    Attributes:
        produced: lines that the cluster acknowledged.
        processed: lines that were processed, each counted once.
        lost: lines that were produced and not processed.
        never_produced: records that were processed and are no line.
        repeated_planned: repetitions that no kill and no freeze excuses.
        repeated_after_kill: repetitions of what the killed worker had not committed.
        repeated_by_frozen: repetitions of what the frozen worker had not committed.
        uncommitted_at_kill: what the killed worker had processed and not committed.
        processed_after_waking: what the frozen worker processed of its old generation then.
        beyond_batch_in_hand: those of them that are beyond the batch in hand of their partition.
        out_of_order: records whose first processing came after that of a later one.
        generations: how many there were.
        stale_commits_refused: commits that were refused because their generation had passed.
        stale_commits_accepted: commits that the woken worker began in its old generation, and
            that were accepted.
        offsets_wrong: partitions whose committed offset is not the end of what was produced.
        counts_equal: whether the workers' word counts are those of a direct count.
        words: how many words there are.
        seconds: how long it took.
        problems: what kept the demo from its course.
    """

    produced: int
    processed: int
    lost: int
    never_produced: int
    repeated_planned: int
    repeated_after_kill: int
    repeated_by_frozen: int
    uncommitted_at_kill: int
    processed_after_waking: int
    beyond_batch_in_hand: int
    out_of_order: int
    generations: int
    stale_commits_refused: int
    stale_commits_accepted: int
    offsets_wrong: int
    counts_equal: bool
    words: int
    seconds: float
    problems: tuple[str, ...]

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words; nothing if all is as it must be."""
        wrong = [text.format(getattr(self, name)) for name, text in FAULTS if getattr(self, name)]
        if not self.counts_equal:
            wrong.append("the workers' word counts are not those of a direct count")
        return [*self.problems, *wrong]


FAULTS: Final = (
    ("lost", "{} lines were produced and never processed"),
    ("never_produced", "{} records were processed that nobody had produced"),
    ("repeated_planned", "{} lines were processed again without a kill or a freeze to excuse it"),
    ("beyond_batch_in_hand", "the woken worker processed {} lines beyond the batches in hand"),
    ("out_of_order", "{} lines were processed before an earlier one of their partition"),
    ("stale_commits_accepted", "{} commits of the woken worker's old generation were accepted"),
    ("offsets_wrong", "{} partitions are not committed to the end of what was produced"),
)
"""The figures that must be 0, and what it means where one is not."""
