"""Prints the traces of seeds in a process of its own: ``python tracing.py FIRST END MEMBERS``."""

from __future__ import annotations

import sys

from kgroup.testing.simulation import Scenario, generate_plan, simulate


def main() -> None:
    """Print the traces, each under a line with its seed."""
    first, end, members = map(int, sys.argv[1:])
    # It switches trio's scheduling for the whole process, which kgroup has to do by itself.
    assert "hypothesis" not in sys.modules
    for seed in range(first, end):
        scenario = Scenario(members=members, duration=200.0, faults_per_hour=300.0, logins=True)
        plan = generate_plan(scenario, seed)
        print(f"seed {seed}\n{plan}\n{simulate(plan).trace}")  # noqa: T201 # what it is for


if __name__ == "__main__":
    main()
