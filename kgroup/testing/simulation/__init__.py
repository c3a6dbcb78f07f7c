"""A cluster, a network and any number of members in one process, in virtual time, by a seed.

A ``Scenario`` says what all simulations share, ``draw`` makes one seed's ``Plan`` of it, and
``simulate`` runs a plan and says in an ``Outcome`` what was seen and what was wrong with it.
``check`` runs many seeds over all processors, and fails with a ``SimulationError``: the shortest
schedule of faults that still fails, a picture of the group, and what runs it again::

    from kgroup.testing.simulation import Process, Scenario, check

    async def worker(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, process, generation, partition)

    def test_worker() -> None:
        check(Scenario(members=4), range(100), worker)

A program says by ``Process.processed`` (or `Process.process`, which takes the time of some work
first) what it has done; that no record is lost is judged by it. ``worker`` is the program that
``kgroup simulate`` runs if it is given none. ``faults`` are what can go wrong, as values, for a
plan of one's own. Nothing here is async: call it from outside of an event loop.
"""

from __future__ import annotations

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.campaign import Progress, check
from kgroup.testing.simulation.default_program import worker
from kgroup.testing.simulation.plan import MemberPlan, Plan, Scenario
from kgroup.testing.simulation.plan_generation import draw
from kgroup.testing.simulation.process import Process, Worker
from kgroup.testing.simulation.report import SimulationError
from kgroup.testing.simulation.run import Outcome, simulate
from kgroup.testing.simulation.summary import Summary

__all__ = [
    "MemberPlan",
    "Outcome",
    "Plan",
    "Process",
    "Progress",
    "Scenario",
    "SimulationError",
    "Summary",
    "Worker",
    "check",
    "draw",
    "faults",
    "simulate",
    "worker",
]
