"""The end of each leader epoch of a log, for consumers that detect truncation (KIP-320)."""

from __future__ import annotations

from kgroup.broker.leader_epochs import LeaderEpochs


def test_an_epoch_ends_where_the_next_began() -> None:
    """The latest epoch ends at the log's end; one between known ones, where the earlier ended."""
    epochs = LeaderEpochs()
    epochs.begin(2, 5)
    epochs.begin(4, 9)
    assert epochs.latest == 4
    assert [epochs.end_of(epoch, 12) for epoch in range(-1, 6)] == [
        (-1, -1),
        (0, 5),
        (0, 5),
        (2, 9),
        (2, 9),
        (4, 12),
        (-1, -1),
    ]
    assert [epochs.at(offset) for offset in (0, 4, 5, 9, 100)] == [0, 0, 2, 4, 4]


def test_an_epoch_without_records_leaves_no_trace() -> None:
    """An epoch in which nothing was written is forgotten, because nothing of it was read."""
    epochs = LeaderEpochs()
    epochs.begin(1, 0)
    assert epochs.end_of(0, 3) == (0, 0)
    epochs.begin(2, 3)
    epochs.begin(3, 3)
    assert epochs.end_of(2, 8) == (1, 3)
    assert epochs.end_of(3, 8) == (3, 8)
