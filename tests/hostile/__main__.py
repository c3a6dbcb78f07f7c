"""Any number of hostile cases: ``python -m tests.hostile --client --cases 100000 --seed 7``.

A case is identified by the seed and its number; ``--case 4711`` plays only that one. Each side is a
module with ``play(seed, numbers)``, which plays the cases with these numbers. For each case that
ended in a way that is not allowed it yields the number and what happened.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Final

SIDES: Final = {"client": "tests.hostile.client", "broker": "tests.hostile.broker"}
PORTION: Final = 500


def main() -> int:
    """Play the cases; returns 1 if one of them ended in a way that is not allowed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    for side in SIDES:
        parser.add_argument(f"--{side}", dest="sides", action="append_const", const=side)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="play this case alone")
    given = parser.parse_args()
    first, last = (0, given.cases) if given.case is None else (given.case, given.case + 1)
    failed = 0
    for side in given.sides or SIDES:
        play = importlib.import_module(SIDES[side]).play
        began = time.process_time()
        for start in range(first, last, PORTION):
            for number, what in play(given.seed, range(start, min(start + PORTION, last))):
                failed += 1
                print(f"{side}: case {number} of seed {given.seed}: {what}", flush=True)
        seconds = time.process_time() - began
        print(f"{side}: {last - first} cases of seed {given.seed} in {seconds:.1f} s CPU")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
