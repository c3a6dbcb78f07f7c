"""What runs beside the members of the classic protocol, where it is compared with earlier ones."""

from __future__ import annotations

from typing import final

from kgroup.testing.simulation.coordination import ClassicCoordination, CoordinationContext
from kgroup.testing.simulation.schemes.owners import Owners


@final
class ClassicWithOwners(ClassicCoordination):
    """Also waits for the members: the coordinator is stable before they know their partitions."""

    def __init__(self, context: CoordinationContext) -> None:
        super().__init__(context)
        self._owners = Owners()
        context.recorder.subscribe(self._owners.handlers)

    async def is_stable(self) -> bool:
        """See ``Coordination``: no group is in a rebalance, and every partition has one owner."""
        return await super().is_stable() and self._owners.are_settled()
