"""60 seeds of ten virtual minutes find nothing wrong; in a third of them members log in.

They are the same in every run, so they only guard what works; ``kgroup simulate --seeds`` plays new
ones. They run in processes of their own, which coverage does not measure, and are the first to
begin (``tests/collecting.py``), so that shorter tests fill the end. Groups are of all sizes and
paces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

SEEDS: Final = 60
PARTS: Final = 6
SHAPES: Final = (
    {"members": 2, "config": {"session_timeout": 10.0, "heartbeat_interval": 3.0}},
    {
        "members": 3,
        "config": {
            "session_timeout": 30.0,
            "heartbeat_interval": 10.0,
            "rebalance_timeout": 30.0,
            "assignors": ["cooperative-sticky"],
        },
    },
    {
        "members": 4,
        "config": {
            "session_timeout": 45.0,
            "heartbeat_interval": 15.0,
            "rebalance_timeout": 60.0,
            "assignors": ["sticky"],
        },
    },
)
MINUTES: Final = 10
PROGRAM: Final = """
import json, sys
from kgroup.testing.simulation import Scenario, check
seeds, scenario = json.loads(sys.argv[1])
summary = check(Scenario(**scenario), range(*seeds), processes=1)
faults = sum(number for _, number in summary.faults)
print(json.dumps([summary.seconds, summary.written, summary.processed, faults]))
"""


@pytest.mark.timeout(900)  # it only computes: a busy machine makes it slow, not wrong
@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part: int) -> None:
    """Whatever goes wrong in a plan of these seeds, every invariant of the group holds."""
    share = SEEDS // PARTS
    scenario = {**SHAPES[part % len(SHAPES)], "duration": MINUTES * 60.0, "logins": True}
    arguments = json.dumps([[part * share, (part + 1) * share], scenario])
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    seconds, written, processed, faults = json.loads(ended.stdout)
    assert seconds >= share * MINUTES * 60
    assert 0 < processed <= written  # a deleted topic takes records along that nobody has read yet
    assert faults > share
