"""Prints for each mutation the first seed that finds it, and what the hunt has cost.

    python -m tests.testing.simulation.mutations [INVARIANT ...]

Seeds are tried from 0 on, whatever the mutations say.
"""

from __future__ import annotations

import sys

from tests.testing.simulation.mutations.hunting import HuntError, hunting
from tests.testing.simulation.mutations.mutation import INVARIANTS, SEEDS
from tests.testing.simulation.mutations.table import MUTATIONS


def main() -> None:
    """Hunt for the mutations of the given invariants, or of all."""
    wanted = [int(number) for number in sys.argv[1:]] or INVARIANTS
    with hunting() as hunter:
        for mutation in (one for one in MUTATIONS if one.breaks in wanted):
            try:
                caught = hunter.hunt(mutation, SEEDS)
            except HuntError as error:
                print(f"{mutation}  {error}", flush=True)
                continue
            print(f"{caught.seed}  {caught.cpu:.1f} s  {mutation}  {caught.violation}", flush=True)


main()
