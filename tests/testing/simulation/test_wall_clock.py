"""The wall clocks of simulated machines: some agree, the others are wrong and jump."""

from __future__ import annotations

import itertools
from random import Random

import trio
from trio.testing import MockClock

from kgroup.testing.simulation.wall_clock import DriftingWallClock


async def readings(seed: int, error: float = 3.0) -> list[float]:
    """By how much one clock is wrong, each minute for two hours."""
    began = trio.current_time()
    clock = DriftingWallClock(Random(seed), error)
    wrong = []
    for _ in range(120):
        wrong.append(clock.now() - trio.current_time())
        await trio.sleep(60)
    assert trio.current_time() - began == 7200
    return wrong


async def test_the_same_seed_is_the_same_clock(autojump_clock: MockClock) -> None:
    """A simulation has to be the same again."""
    again = [round(seconds, 6) for seconds in await readings(1)]
    assert [round(seconds, 6) for seconds in await readings(1)] == again


async def test_half_of_the_clocks_agree_and_the_others_jump(autojump_clock: MockClock) -> None:
    """Both matter: members that beat together, and members that do not."""
    clocks = [await readings(seed) for seed in range(40)]
    synchronized = [wrong for wrong in clocks if max(map(abs, wrong)) <= 0.02]
    assert 10 <= len(synchronized) <= 30
    for wrong in clocks:
        jumps = sum(abs(one - other) > 1e-6 for one, other in itertools.pairwise(wrong))
        assert (jumps == 0) == (wrong in synchronized)


async def test_without_an_error_all_clocks_agree(autojump_clock: MockClock) -> None:
    """A campaign can compare members that beat together with members that do not."""
    for seed in range(10):
        assert set(await readings(seed, error=0.0)) == {0.0}
