"""Plans the next batch: a range of offsets for each partition that has new records.

No I/O: from positions, end offsets and a budget to ranges. The same arguments give the same plan.

The budget is shared fairly (max-min, "water filling"): the level of all partitions rises together;
a small backlog is taken whole, and the rest of its share goes to the others. Where both records and
bytes are limited, a partition's level is its share of the one of which it uses more, so that large
records of one partition do not use up the bytes of all (dominant resource fairness, Ghodsi et al.
2011).

INVARIANTS
- A plan has at most ``budget.records`` offsets, and at most ``budget.bytes`` estimated bytes; but a
  single offset is planned even if its estimate is larger.
- The plan is not empty if there are new records and the budget is not spent.
- No partition starves: the partition whose turn it is gets at least one offset, and each of n
  partitions has its turn once in n successive values of ``turn``, whatever the other backlogs are.
- Ranges are sorted, one for each partition; none is empty or goes past the end.

The estimates are made in ``kgroup.spark.size_estimates``; ``kgroup.spark.offset_ranges`` splits
ranges into tasks; the caller decides what to do about a position beyond the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.spark.batch_limits import Budget
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.size_estimates import SizeEstimates
from kgroup.types import TopicPartition

_WEIGHT: Final = 2**32
"""The weight of the cheapest partition: how fast its offsets rise with the level. The weights of
the others are fractions of it."""


@final
@attrs.frozen
class PositionBeyondEnd:
    """A position past the end of its log: the log was truncated, or the topic was created again.

    The records between the end and the position were read before and no longer exist (an unclean
    leader election, a topic that was deleted and created again). This is not the same as "no new
    records": waiting until the end passes the position would skip records.
    """

    partition: TopicPartition
    position: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} is at {self.position}, but its log ends at {self.end}"


@final
@attrs.frozen
class BatchPlan:
    """The plan of the next batch.

    Attributes:
        ranges: one for each partition that is read, sorted; empty if there is nothing to read.
        lag: offsets from the ends of the ranges to the ends of the logs, over all partitions
            whose ends are known.
        beyond: partitions whose position is past the end; nothing of them is planned.
    """

    ranges: tuple[OffsetRange, ...] = ()
    lag: int = 0
    beyond: tuple[PositionBeyondEnd, ...] = ()

    @property
    def offsets(self) -> int:
        """The number of offsets: the most rows that the batch can have."""
        return sum(part.end - part.start for part in self.ranges)


@final
@attrs.define
class _Share:
    """One partition that has new records, and how much of them is planned."""

    name: TopicPartition
    most: int
    cost: int
    weight: int = _WEIGHT
    taken: int = 0

    @property
    def full(self) -> bool:
        return self.taken >= self.most

    @property
    def full_level(self) -> int:
        """The level at which the whole backlog is planned."""
        return -(-self.most * _WEIGHT // self.weight)


def plan_batch(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    budget: Budget,
    sizes: SizeEstimates,
    turn: int = 0,
) -> BatchPlan:
    """Divide a budget among the partitions that have new records.

    It takes O(n log n) steps for n partitions, whatever their backlogs.

    Args:
        positions: the next offset to read of each owned partition.
        ends: the end offset of each partition. A partition without one is left for the next
            plan; partitions that are not owned are ignored.
        budget: what the plan may use.
        sizes: the estimated bytes of an offset; used only if bytes are limited.
        turn: a number that increases by one from plan to plan.
    """
    order = sorted(positions)
    shares: list[_Share] = []
    beyond: list[PositionBeyondEnd] = []
    lag = 0
    for name in _rotated(order, turn):
        backlog = ends.get(name, positions[name]) - positions[name]
        if backlog < 0:
            beyond.append(PositionBeyondEnd(name, positions[name], ends[name]))
        elif backlog:
            lag += backlog
            shares.append(_share(name, backlog, budget, sizes))
    if not budget.spent:
        _fill(shares, budget)
    taken = {share.name: share.taken for share in shares if share.taken}
    ranges = tuple(
        OffsetRange(name.topic, name.partition, positions[name], positions[name] + taken[name])
        for name in sorted(taken)
    )
    beyond.sort(key=lambda item: item.partition)
    return BatchPlan(ranges, lag - sum(taken.values()), tuple(beyond))


def _rotated(order: list[TopicPartition], turn: int) -> list[TopicPartition]:
    """All owned partitions, beginning with the one whose turn it is.

    The turn counts over all of them, not over those with new records: their number changes from
    plan to plan, so that a partition could miss its turn each time.
    """
    first = turn % len(order) if order else 0
    return order[first:] + order[:first]


def _share(name: TopicPartition, backlog: int, budget: Budget, sizes: SizeEstimates) -> _Share:
    if budget.bytes is None:
        return _Share(name, most=backlog, cost=0)
    return _Share(name, most=min(backlog, sizes.max_offsets(name)), cost=sizes.offset_bytes(name))


def _fill(shares: list[_Share], budget: Budget) -> None:
    """Set how many offsets of each share are planned; shares are in the order of their turns."""
    if not shares:
        return
    _weigh(shares, budget)
    left = _raise_level(shares, budget)
    first, others = shares[0], shares[1:]
    if not first.taken:
        # Its fair share is less than one offset: it gets one, and the others divide what is left.
        for share in others:
            share.taken = 0
        first.taken = 1
        shares = others
        left = _raise_level(others, _reduced(budget, first))
    _plan_leftover(shares, left)


def _weigh(shares: list[_Share], budget: Budget) -> None:
    """Set the weights: the more of the budget an offset uses, the slower its partition rises."""
    if budget.bytes is None:
        return
    # An offset uses 1/records of one budget and cost/bytes of the other. Both are multiplied by
    # records x bytes, so that they are whole numbers.
    records = budget.records if budget.records is not None else 1
    least = budget.bytes if budget.records is not None else 0
    used = [max(least, share.cost * records) for share in shares]
    cheapest = min(used)
    for share, use in zip(shares, used, strict=True):
        share.weight = max(1, _WEIGHT * cheapest // use)


def _raise_level(shares: list[_Share], budget: Budget) -> Budget:
    """Raise the level of all shares until the budget is used up; return what is left of it."""
    waiting = sorted(shares, key=lambda share: share.full_level)
    weights = sum(share.weight for share in waiting)
    weighted_cost = sum(share.weight * share.cost for share in waiting)
    left = budget
    for number, share in enumerate(waiting):
        level = _level(left, weights, weighted_cost, share.full_level)
        if level < share.full_level:
            for last in waiting[number:]:
                last.taken = min(last.most, level * last.weight // _WEIGHT)
                left = _reduced(left, last, last.taken)
            break
        share.taken = share.most
        left = _reduced(left, share, share.taken)
        weights -= share.weight
        weighted_cost -= share.weight * share.cost
    return left


def _level(left: Budget, weights: int, weighted_cost: int, most: int) -> int:
    """The level, up to `most`, to which the shares that still rise can rise together.

    Rounded down, so that their offsets, each rounded down as well, never exceed what is left.
    """
    level = most
    if left.records is not None:
        level = min(level, max(0, left.records) * _WEIGHT // weights)
    if left.bytes is not None:
        level = min(level, max(0, left.bytes) * _WEIGHT // weighted_cost)
    return level


def _plan_leftover(shares: list[_Share], left: Budget) -> None:
    """Plan what rounding has left over, one offset each, in the order of the turns."""
    for share in shares:
        if left.spent:
            return
        if not share.full and (left.bytes is None or share.cost <= left.bytes):
            share.taken += 1
            left = _reduced(left, share)


def _reduced(budget: Budget, share: _Share, offsets: int = 1) -> Budget:
    return Budget(
        None if budget.records is None else budget.records - offsets,
        None if budget.bytes is None else budget.bytes - offsets * share.cost,
    )
