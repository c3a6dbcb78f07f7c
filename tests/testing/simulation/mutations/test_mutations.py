"""Every invariant can fail: each of these changed lines breaks one, and the simulator finds it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.testing.simulation.mutations.hunting import Hunter
from tests.testing.simulation.mutations.mutation import INVARIANTS, SEEDS, Mutation
from tests.testing.simulation.mutations.table import MUTATIONS


def test_every_invariant_has_two_mutations() -> None:
    """Every invariant has two mutations, so that none is found by chance alone."""
    counts = Counter(mutation.breaks for mutation in MUTATIONS)
    assert [number for number in INVARIANTS if counts[number] < 2] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_is_found(hunter: Hunter, mutation: Mutation) -> None:
    """One of the seeds must break the very invariant that the change breaks."""
    caught = hunter.hunt(mutation)
    assert caught.seed is not None, (
        f"in {caught.tried} seeds invariant {mutation.breaks} held although"
        f" {mutation.module} has {mutation.new!r} for {mutation.old!r}; {caught.failed[:1]}"
    )
    assert caught.seed in SEEDS


@pytest.mark.parametrize(
    ("partition_handler", "seed"),
    sorted({(one.partition_handler, one.seed) for one in MUTATIONS}, key=str),
)
def test_without_a_change_a_seed_finds_nothing(
    hunter: Hunter, partition_handler: str | None, seed: int
) -> None:
    """The seeds break nothing in the unchanged code."""
    caught = hunter.hunt_unchanged((seed,), partition_handler)
    assert caught.violation == ""
    assert caught.failed == []
