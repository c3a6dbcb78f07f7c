"""The interface between a simulation and the group protocol that its members use.

The engine runs brokers, network, programs and faults, whichever the protocol is. What depends on
it is a `Coordination`: what runs beside the members, what a fault of a broker or of the coordinator
means for it, and whether its groups are stable. `ClassicCoordination` is that of kgroup's members,
whose groups are coordinated by the embedded brokers; ``schemes`` has those of Kafka's earlier
protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol, final

import attrs
import trio

from kgroup.broker import EmbeddedCluster
from kgroup.testing.simulation.faults import CoordinatorMoves
from kgroup.testing.simulation.network import Network
from kgroup.testing.simulation.observer import CoordinatorObserver, Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition


@final
@attrs.frozen(kw_only=True)
class CoordinationContext:
    """The parts of a simulation that a group protocol may use.

    Attributes:
        plan: the plan.
        recorder: records what happens.
        cluster: the brokers.
        network: the network between members and brokers.
        coordinators: observes the embedded brokers' coordinators.
        nursery: runs what is needed beside the members; cancelled at the end.
        new_random: makes a generator for a purpose; see ``Engine``.
    """

    plan: Plan
    recorder: Recorder
    cluster: EmbeddedCluster
    network: Network
    coordinators: CoordinatorObserver
    nursery: trio.Nursery
    new_random: Callable[[str], Random]


class Coordination(Protocol):
    """What a group protocol has beside its members."""

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that were seen."""
        ...

    async def is_stable(self) -> bool:
        """Whether no group is in a rebalance."""
        ...

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """For each partition the stored offset of a group."""
        ...

    async def move_coordinator(
        self, fault: CoordinatorMoves, after: Callable[[int | None], int | None]
    ) -> None:
        """Let the next broker coordinate; ``after`` names the next one that is running."""
        ...

    def broker_stops(self, node_id: int, *, killed: bool) -> None:
        """A broker has stopped, in good order or not."""
        ...

    def broker_starts(self, node_id: int) -> None:
        """A broker has started again."""
        ...


NewCoordination = Callable[[CoordinationContext], Coordination]


class ClassicCoordination:
    """The classic group protocol, with the embedded brokers' coordinators."""

    def __init__(self, context: CoordinationContext) -> None:
        self._cluster = context.cluster
        self._coordinators = context.coordinators

    @property
    def group_ids(self) -> tuple[str, ...]:
        """See ``Coordination``."""
        return self._coordinators.group_ids

    async def is_stable(self) -> bool:
        """See ``Coordination``."""
        states: Mapping[str, str] = {
            group.group_id: group.state for group in await self._cluster.groups()
        }
        return all(states.get(name) in ("Stable", "Empty") for name in self.group_ids)

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """See ``Coordination``."""
        offsets = await self._cluster.committed(group_id)
        return {name: at.offset for name, at in sorted(offsets.items())}

    async def move_coordinator(
        self, fault: CoordinatorMoves, after: Callable[[int | None], int | None]
    ) -> None:
        """See ``Coordination``."""
        for group_id in self.group_ids:
            node_id = after(self._cluster.coordinator_of(group_id))
            if node_id is not None:
                await self._cluster.move_coordinator(
                    group_id, node_id, away=fault.away, loading=fault.loading
                )

    def broker_stops(self, node_id: int, *, killed: bool) -> None:
        """See ``Coordination``; the embedded broker moves its coordinators itself."""

    def broker_starts(self, node_id: int) -> None:
        """See ``Coordination``."""
