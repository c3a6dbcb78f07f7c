"""Simulates a cluster, a network and any number of members in one process and in virtual time.

A ``Scenario`` holds what all simulations of a campaign share, ``generate_plan`` makes the ``Plan``
of one seed from it, and ``simulate`` runs a plan and returns an ``Outcome``: the history and the
violations. ``check`` simulates many seeds on all processors and raises ``SimulationError`` for the
first that fails, with the shortest schedule of faults that still fails, a timeline of the group,
and the command that runs it again::

    from kgroup.testing.simulation import Process, Scenario, check

    async def worker(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, process, generation, partition)

    def test_worker() -> None:
        check(Scenario(members=4), range(100), worker)

A program reports the records that it has processed by ``Process.processed``, or by
``Process.process``, which first takes the time of some work; the checks for lost records rely on
it. ``default_worker`` is the program that ``kgroup simulate`` runs by default. ``faults`` has the
classes of faults, for plans of one's own. Nothing here is async: call it outside an event loop.
"""

from __future__ import annotations

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.campaign import Progress, check
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.hanging import SimulationHangError
from kgroup.testing.simulation.plan import MemberPlan, Plan, Scenario
from kgroup.testing.simulation.plan_generation import generate_plan
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
    "SimulationHangError",
    "Summary",
    "Worker",
    "check",
    "default_worker",
    "faults",
    "generate_plan",
    "simulate",
]


def __dir__() -> list[str]:
    """The public names: completion shows none of the modules that define them."""
    return sorted(__all__)
