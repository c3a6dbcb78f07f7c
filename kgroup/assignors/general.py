"""Sticky assignment where members subscribe to different topics: fill up, then balance.

Members keep what they own. What is left goes, topics with the fewest subscribers first, to the
subscriber that has least: first within racks, then regardless. Then partitions are moved from
members that have more to members that have less, as long as a move makes a difference.

Source: Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from kgroup.assignors.balancing import AstrayError, Balancing
from kgroup.assignors.draft import DraftAssignment, Topics
from kgroup.assignors.ownership import MemberClaim, Ownership
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.racks import Racks
from kgroup.assignors.user_data import NO_GENERATION


def general(
    layout: PartitionIndex,
    wanted: Sequence[frozenset[str]],
    claims: Sequence[MemberClaim],
    ownership: Ownership,
    racks: Racks | None,
) -> list[MemberPartitions]:
    """Divide the partitions among members, in order of their ids.

    Args:
        layout: the topics that somebody subscribes to.
        wanted: what each member subscribes to.
        claims: what each member says that it owned, and when.
        ownership: which of the claims count.
        racks: the members' and partitions' racks, or None where they make no difference.
    """
    previous = _previous(claims)
    table = DraftAssignment(layout, wanted)
    returning = {
        index: member
        for index, member in previous.items()
        if layout.place_of(index) in table.subscribed[member]
    }
    if returning != previous:
        try:
            _divide(table, ownership, racks, previous)
        except AstrayError:
            pass
        else:
            if table.valid():
                return table.shares()
        table = DraftAssignment(layout, wanted)
    _divide(table, ownership, racks, returning)
    return table.shares()


def _divide(
    table: DraftAssignment, ownership: Ownership, racks: Racks | None, previous: Mapping[int, int]
) -> None:
    given_up = _keep(table, ownership, racks)
    initial = not any(table.counts)
    new = table.unassigned()
    if racks is not None:
        _fill_within_racks(table, new, racks)
    _fill(table, new)
    counts, owner = table.counts[:], table.owner[:]
    balancing = Balancing(table, previous)
    if not given_up:
        balancing.run(new)
    moved = balancing.run([(topic, table.layout.span(topic)) for topic in table.order])
    if moved and not initial and table.imbalance(table.counts) >= table.imbalance(counts):
        table.counts, table.owner = counts, owner


def _keep(table: DraftAssignment, ownership: Ownership, racks: Racks | None) -> bool:
    """Leave members what they own; returns whether one had to give something up."""
    given_up = False
    for member, owned in enumerate(ownership.owned):
        subscribed = table.subscribed[member]
        for index in owned:
            if table.layout.place_of(index) not in subscribed or (
                racks is not None and not racks.suits(member, index)
            ):
                given_up = True
            else:
                table.give(index, member)
    return given_up


def _fill_within_racks(table: DraftAssignment, free: Topics, racks: Racks) -> None:
    """Give each partition to the one that has least of those that it suits, if any."""
    for topic, indexes in free:
        heaps: dict[str | None, list[int]] = {}
        for member in table.subscribers[topic]:
            heaps.setdefault(racks.members[member], []).append(table.key(member))
        for heap in heaps.values():
            heapify(heap)
        for index in indexes:
            suited = [heaps[at] for at in (None, *racks.of_partition(index)) if at in heaps]
            if suited:
                heap = min(suited, key=lambda heap: heap[0])
                table.give(index, heap[0] % table.members)
                heapreplace(heap, heap[0] + table.members)


def _fill(table: DraftAssignment, free: Topics) -> None:
    """Give each partition that nobody has yet to the subscriber that has least."""
    owner, counts, members = table.owner, table.counts, table.members
    for topic, indexes in free:
        heap = [table.key(member) for member in table.subscribers[topic]]
        heapify(heap)
        for index in indexes:
            if owner[index] < 0:
                least = heap[0]
                member = least % members
                owner[index] = member
                counts[member] += 1
                heapreplace(heap, least + members)


def _previous(claims: Sequence[MemberClaim]) -> dict[int, int]:
    """Who claims what from a generation before the latest, of several the latest such."""
    latest = max((claim.weight for claim in claims), default=NO_GENERATION)
    previous: dict[int, tuple[int, int]] = {}
    for member, claim in enumerate(claims):
        if claim.weight < latest:
            for index in claim.indexes:
                if index not in previous or claim.weight > previous[index][0]:
                    previous[index] = claim.weight, member
    return {index: member for index, (_, member) in previous.items()}
