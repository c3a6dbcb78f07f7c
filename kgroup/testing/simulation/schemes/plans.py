"""The plans under which the protocols are compared: the simulator's, without what only one has.

A plan of these has no static members, no logins, no transactions and no seeks, and no fault that
waits for a state of the classic protocol. Everything else is as its seed decides, and the same for
every protocol.
"""

from __future__ import annotations

from typing import Final

import attrs

from kgroup.testing.simulation.faults import SecondProgram
from kgroup.testing.simulation.partition_handlers import PLAIN
from kgroup.testing.simulation.plan import Plan, Scenario
from kgroup.testing.simulation.plan_generation import generate_plan

_ONLY_CLASSIC: Final = ("isolation_level",)


def comparable_plan(scenario: Scenario, seed: int) -> Plan:
    """The plan of a seed that every protocol can run.

    Args:
        scenario: as for `generate_plan`; topics are not deleted, and no member logs in.
        seed: any integer.
    """
    plan = generate_plan(attrs.evolve(scenario, logins=False, deletes_topics=False), seed)
    return attrs.evolve(
        plan,
        members=tuple(attrs.evolve(one, group_instance_id=None) for one in plan.members),
        config={name: value for name, value in plan.config.items() if name not in _ONLY_CLASSIC},
        faults=tuple(
            one for one in plan.faults if one.when is None and not isinstance(one, SecondProgram)
        ),
        long_work=0.0,
        partition_handler=PLAIN,
        transactional=0.0,
    )
