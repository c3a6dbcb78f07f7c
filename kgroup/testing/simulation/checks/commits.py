"""Invariants 4 and 5: the commits that a coordinator accepts, and those that a member makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit, TxnOffsetCommit
from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY, GroupView
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import RequestHandled

_COMMITS: Final = ("offset_commit", "txn_offset_commit")
_NONE: Final = (-1, "", None)
"""Generation, member and instance of a commit that names none."""


@final
class AcceptedCommits(Check):
    """Checks every commit that a coordinator accepted, wholly or in part."""

    number: ClassVar[int] = 4
    invariant: ClassVar[str] = (
        "A coordinator accepts commits only from current members in the current generation, and "
        "none while the group awaits its assignment. Offsets for a transaction are accepted then "
        "too, and from producers that name no member, but only under the producer's latest epoch."
    )

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return dict.fromkeys(_COMMITS, self._committed)

    def _committed(self, entry: RequestHandled) -> None:
        if not self.views.groups.commit.accepted:
            return
        request = entry.request
        assert isinstance(request, OffsetCommit | TxnOffsetCommit)
        group = self.views.groups[request.group_id]
        if (fault := _fault(request, group, entry, self.views.groups.epochs)) is not None:
            self.report(
                entry.at,
                f"broker {entry.node_id} accepted a commit of"
                f" {entry.process or 'an unknown client'}"
                f" (member {request.member_id!r}, generation {request.generation_id}): {fault}",
            )


def _fault(
    request: OffsetCommit | TxnOffsetCommit,
    group: GroupView,
    entry: RequestHandled,
    epochs: Mapping[int, int],
) -> str | None:
    """Why the commit should have been refused, or None; with the latest epochs of producers."""
    if group.now is not None and group.now.node_id != entry.node_id:
        return f"the group is coordinated by broker {group.now.node_id}"
    transactional = isinstance(request, TxnOffsetCommit)
    if isinstance(request, TxnOffsetCommit):
        latest, epoch = epochs[request.producer_id], request.producer_epoch
        if epoch < latest:
            return f"the producer has epoch {latest}, and the commit epoch {epoch}"
    names_none = (request.generation_id, request.member_id, request.group_instance_id) == _NONE
    if request.generation_id < 0 and (group.state == EMPTY or (transactional and names_none)):
        return None
    member = group.members.get(request.member_id)
    if member is None:
        return "it is not a member"
    faults = {
        f"its instance id is {member.group_instance_id!r}": request.group_instance_id
        not in (None, member.group_instance_id),
        f"the group is in generation {group.generation_id}": request.generation_id
        != group.generation_id,
        "the group awaits its assignment": group.state == COMPLETING and not transactional,
    }
    return next((words for words, holds in faults.items() if holds), None)


@final
class OwnCommits(Check):
    """Checks every commit that a member of a generation sent, accepted or not."""

    number: ClassVar[int] = 5
    invariant: ClassVar[str] = (
        "A member commits only partitions that it owns, and never past the last record that it "
        "was handed, or its start; but the program may commit where it has sought, or what it has "
        "reported as skipped. No commit of a former generation counts as one of a later "
        "generation, and sets it back behind its start."
    )

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return dict.fromkeys(_COMMITS, self._committed)

    def _committed(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, OffsetCommit | TxnOffsetCommit)
        if request.generation_id < 0:
            return
        generation_id, member_id = request.generation_id, request.member_id
        group = self.views.groups[request.group_id]
        own = group.assignments.get((generation_id, member_id), frozenset())
        held = self.views.programs.of_member(request.group_id, member_id, generation_id)
        for partition, offset in self.views.groups.commit.requested.items():
            who = f"{entry.process or member_id} committed {partition} at {offset} in generation"
            if partition not in own:
                self.report(
                    entry.at,
                    f"{who} {generation_id}, in which it does not own it",
                    partition=partition,
                    offset=offset,
                )
                continue
            position = None if held is None else held.position(partition)
            # A reset or another seek may have overtaken the commit of an offset that was sought.
            if held is not None and offset in held.chosen.get(partition, ()):
                continue
            started = None if held is None else held.lowest_starts.get(partition)
            accepted = partition in self.views.groups.commit.accepted
            if accepted and started is not None and offset < started:
                self.report(
                    entry.at,
                    f"{who} {generation_id}, which started it at {started}: a commit of a former"
                    " generation has arrived late, and the coordinator could not tell",
                    partition=partition,
                    offset=offset,
                )
            if position is None or offset > position:
                self.report(
                    entry.at,
                    f"{who} {generation_id}, in which its position is {position}",
                    partition=partition,
                    offset=offset,
                )
