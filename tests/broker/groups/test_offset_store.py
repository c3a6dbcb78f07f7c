"""The store of offsets: what open transactions have of a group, after any change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import OffsetRecord
from kgroup.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


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
    other = OffsetStore()
    other.commit_pending(7, "g", C, record(other))
    offsets, pending = other.snapshot(["g"])
    return offsets, dict(pending)


@pytest.fixture
def store() -> OffsetStore:
    """A store with A and B pending in group g, of two producers, and A in group h."""
    made = OffsetStore()
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
