"""Invariant 9: acknowledged commits survive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.broker.groups.responses import OffsetsFetched
from kgroup.error_codes import ErrorCode
from kgroup.events import Committed
from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import (
    CoordinatorMoved,
    EventReported,
    FinalGroupState,
    RequestHandled,
)
from kgroup.types import TopicPartition


@final
class Failover(Check):
    """Compares the commits that programs got acknowledged with what every coordinator has."""

    number: ClassVar[int] = 9
    invariant: ClassVar[str] = (
        "A commit that was acknowledged was accepted by a coordinator, and survives every failover."
    )

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            Committed: self._committed,
            CoordinatorMoved: self._moved,
            FinalGroupState: self._at_the_end,
            "offset_fetch": self._fetched,
        }

    def _committed(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Committed)
        for partition, offset in event.offsets.items():
            if not self.views.programs.was_accepted(
                event.group_id, event.member_id, partition, offset
            ):
                self.report(
                    entry.at,
                    f"{entry.process} reported that {partition} was committed at {offset} in"
                    f" generation {event.generation_id}, which no coordinator has accepted from it",
                    partition=partition,
                    offset=offset,
                )

    def _moved(self, entry: CoordinatorMoved) -> None:
        where = f"after the failover to broker {entry.node_id}"
        self._compare(entry.at, entry.group_id, entry.committed, where)

    def _at_the_end(self, entry: FinalGroupState) -> None:
        self._compare(entry.at, entry.group_id, entry.committed, "at the end")

    def _fetched(self, entry: RequestHandled) -> None:
        response = entry.response
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
            according = f"according to broker {entry.node_id}"
            self._compare(
                entry.at, group.group_id, offsets, according, of=offsets.keys() & known.keys()
            )

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
                self.report(
                    at,
                    f"the commit of {partition} at {known[partition]} was acknowledged, and"
                    f" {when} it is at {committed.get(partition)}",
                    partition=partition,
                    offset=known[partition],
                )
