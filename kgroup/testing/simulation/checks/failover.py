"""Invariant 9: what was acknowledged stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.broker.groups.responses import OffsetsFetched
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import CoordinatorMoved, Judged, Settled
from kgroup.types import TopicPartition


@final
class Failover(Check):
    """Compares what programs were told is committed with what every coordinator has."""

    number: ClassVar[int] = 9
    says: ClassVar[str] = "A commit that was acknowledged survives every failover."

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            CoordinatorMoved: self._moved,
            Settled: self._settled,
            "offset_fetch": self._fetched,
        }

    def _moved(self, fact: CoordinatorMoved) -> None:
        where = f"after the failover to broker {fact.node_id}"
        self._compare(fact.at, fact.group_id, fact.committed, where)

    def _settled(self, fact: Settled) -> None:
        self._compare(fact.at, fact.group_id, fact.committed, "at the end")

    def _fetched(self, fact: Judged) -> None:
        response = fact.response
        assert isinstance(response, OffsetsFetched)
        for group in response.groups:
            if group.error is not ErrorCode.NONE:
                continue
            offsets = {
                TopicPartition(one.topic, one.partition): one.offset
                for one in group.partitions
                if one.error is ErrorCode.NONE
            }
            known = self.views.programs.acknowledged[group.group_id]
            told = f"as broker {fact.node_id} tells it"
            self._compare(fact.at, group.group_id, offsets, told, of=offsets.keys() & known.keys())

    def _compare(
        self,
        at: float,
        group_id: str,
        committed: Mapping[TopicPartition, int],
        when: str,
        *,
        of: set[TopicPartition] | None = None,
    ) -> None:
        known = self.views.programs.acknowledged[group_id]
        for partition in sorted(known if of is None else of):
            if committed.get(partition, -1) < known[partition]:
                self.accuse(
                    at,
                    f"the commit of {partition} at {known[partition]} was acknowledged, and"
                    f" {when} it is at {committed.get(partition)}",
                )
