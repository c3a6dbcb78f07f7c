"""Three hundred seeds of ten virtual minutes find nothing wrong.

They are split so that the processes of the test suite share them, and groups are of all sizes.
"""

from __future__ import annotations

from typing import Final

import pytest

from kgroup.testing.simulation import Scenario, check

SEEDS: Final = 300
PARTS: Final = 30
MEMBERS: Final = (2, 3, 4)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part: int) -> None:
    """Whatever goes wrong in a plan of these seeds, every invariant of the group holds."""
    scenario = Scenario(members=MEMBERS[part % len(MEMBERS)])
    assert scenario.duration == 600.0
    share = SEEDS // PARTS
    summary = check(scenario, range(part * share, (part + 1) * share), processes=1)
    assert summary.seconds >= share * scenario.duration
    assert summary.processed == summary.written > 0
    assert sum(number for _, number in summary.faults) > share
