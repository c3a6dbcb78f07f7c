"""The store of offsets: what open transactions have of a group, after any change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import OffsetRecord
from kgroup.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
WRITTEN = {(1, "g"), (1, "h"), (2, "g")}
"""Which producers of the fixture have offsets of which groups."""


def record(store: OffsetStore) -> OffsetRecord:
    """An offset to store."""
    return OffsetRecord(
        offset=1,
        leader_epoch=-1,
        metadata="",
        sequence=store.next_sequence(),
        committed_at=0.0,
        expires_at=None,
    )


def snapshot_of_c() -> tuple[dict[str, dict[TopicPartition, OffsetRecord]], dict[int, object]]:
    """The records of another store, with C pending in group g."""
    other = OffsetStore(ord)
    other.commit_pending(7, "g", C, record(other))
    offsets, pending = other.snapshot(["g"])
    return offsets, dict(pending)


@pytest.fixture
def store() -> OffsetStore:
    """A store with A and B pending in group g, of two producers, and A in group h."""
    made = OffsetStore(ord)
    made.commit_pending(1, "g", A, record(made))
    made.commit_pending(2, "g", B, record(made))
    made.commit_pending(1, "h", A, record(made))
    return made


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda store: None, {A, B}),
        (lambda store: store.commit_pending(1, "g", C, record(store)), {A, B, C}),
        (lambda store: store.complete(1, committed=True), {B}),
        (lambda store: store.complete(2, committed=False), {A}),
        (lambda store: store.delete("g", [A]), {B}),
        (lambda store: store.delete_group("g"), set()),
        (lambda store: store.delete_partitions([B]), {A}),
        (lambda store: store.load(*snapshot_of_c()), {A, B, C}),
        (lambda store: store.unload(["g"]), set()),
    ],
)
def test_pending_partitions_follow_every_change(
    store: OffsetStore, change: Callable[[OffsetStore], None], expected: set[TopicPartition]
) -> None:
    """A change of pending offsets shows at once, also after they have been requested before."""
    assert set(store.pending_of("g")) == {A, B}
    change(store)
    assert set(store.pending_of("g")) == expected


def test_pending_partitions_are_collected_once(store: OffsetStore) -> None:
    """A repeated request finds the same collection, and groups without any are not remembered."""
    assert store.pending_of("g") is store.pending_of("g")
    for number in range(3):
        assert not store.pending_of(f"unknown {number}")
    assert set(store._pending_of) == {"g"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda store: None, WRITTEN),
        (lambda store: store.commit_pending(2, "h", C, record(store)), {*WRITTEN, (2, "h")}),
        (lambda store: store.complete(1, committed=True), {(2, "g")}),
        (lambda store: store.delete_group("g"), WRITTEN),
        (lambda store: store.load(*snapshot_of_c()), {*WRITTEN, (7, "g")}),
        (lambda store: store.unload(["g"]), {(1, "h")}),
    ],
)
def test_the_shards_of_a_transaction_follow_every_change(
    store: OffsetStore, change: Callable[[OffsetStore], None], expected: set[tuple[int, str]]
) -> None:
    """A producer has written to the shards of its groups until its transaction ends."""
    change(store)
    found = {
        (producer_id, group_id)
        for producer_id in (1, 2, 7)
        for group_id in "gh"
        if store.has_written(producer_id, ord(group_id))
    }
    assert found == expected


def test_the_shard_of_a_group_is_computed_once_in_a_transaction() -> None:
    """Neither a further offset of the group nor a question computes it again."""
    computed = []

    def shard_of(group_id: str) -> int:
        computed.append(group_id)
        return 0

    made = OffsetStore(shard_of)
    for group_id in "ghg":
        for partition in (A, B):
            made.commit_pending(1, group_id, partition, record(made))
    assert made.has_written(1, 0)
    assert not made.has_written(1, 1)
    assert computed == ["g", "h"]
