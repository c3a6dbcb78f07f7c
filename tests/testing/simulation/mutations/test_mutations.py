"""Each invariant can fail: changed lines that break it, each of which the simulator finds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.testing.simulation.mutations.hunting import Hunter
from tests.testing.simulation.mutations.mutation import INVARIANTS, SEEDS, Mutation
from tests.testing.simulation.mutations.table import MUTATIONS


def test_every_invariant_has_two_mutations() -> None:
    """No invariant rests on a single change that could be found by chance."""
    counts = Counter(mutation.breaks for mutation in MUTATIONS)
    assert [number for number in INVARIANTS if counts[number] < 2] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_is_found(hunter: Hunter, mutation: Mutation) -> None:
    """Within the seeds the simulator finds the very invariant broken that the change breaks."""
    caught = hunter.hunt(mutation)
    assert caught.seed is not None, (
        f"in {caught.tried} seeds invariant {mutation.breaks} held although"
        f" {mutation.module} has {mutation.new!r} for {mutation.old!r}; {caught.failed[:1]}"
    )
    assert caught.seed in SEEDS


@pytest.mark.parametrize("seed", sorted({mutation.seed for mutation in MUTATIONS}))
def test_without_a_change_a_seed_finds_nothing(hunter: Hunter, seed: int) -> None:
    """What a seed finds in changed code is the change's doing."""
    caught = hunter.look(seeds=(seed,))
    assert caught.violation == ""
    assert caught.failed == []
