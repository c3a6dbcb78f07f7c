"""What the next batch reads: a range of offsets for each partition that has something new.

Pure: positions, ends and a budget in, ranges out; the same arguments make the same plan_batch.

The budget is shared fairly (max-min, "water filling"): the level of all partitions rises together,
a small backlog is taken whole and what it leaves is shared by the rest. Where both records and
bytes are limited, a partition's level is its share of whichever of the two it uses more of, so
that large records of one partition do not take the bytes of all (dominant resource fairness,
Ghodsi et al. 2011).

INVARIANTS
- Never more offsets than ``budget.records``; never more estimated bytes than ``budget.bytes``,
  except that a single offset is planned even if it is estimated as more.
- Something is planned whenever something is new and the budget is not spent.
- No partition starves: the one whose turn it is has an offset, and each of n partitions has its
  turn once in n successive values of ``turn``, whatever the others' backlogs.
- No empty range, none past an end, one a partition; sorted.

Left to others: what sizes are likely (``kgroup.spark.size_estimates``), splitting ranges into tasks
(``kgroup.spark.offset_ranges``), and what is done about a position beyond the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.spark.batch_limits import Budget
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.size_estimates import Sizes
from kgroup.types import TopicPartition

_WEIGHT: Final = 2**32
"""How fast the cheapest partition's offsets rise with the level; the others' are parts of it."""


@final
@attrs.frozen
class Beyond:
    """A position past the end of its log: the log was cut, or it is another topic by now.

    Records between the end and the position were read once and are gone (an unclean leader, a
    topic deleted and made again). It is no "nothing new", and waiting would skip what comes.
    """

    partition: TopicPartition
    position: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} is at {self.position}, but its log ends at {self.end}"


@final
@attrs.frozen
class BatchPlan:
    """What the next batch reads.

    Attributes:
        ranges: one for each partition that is read, sorted; empty when nothing is to do.
        lag: offsets from the ends of the ranges to the ends of the logs, over all partitions
            whose ends were told.
        beyond: partitions whose position is past their end; nothing of them is planned.
    """

    ranges: tuple[OffsetRange, ...] = ()
    lag: int = 0
    beyond: tuple[Beyond, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets are read: the most rows that the batch can have."""
        return sum(part.end - part.start for part in self.ranges)


@final
@attrs.define
class _Share:
    """One partition that has something new."""

    name: TopicPartition
    most: int
    cost: int
    weight: int = _WEIGHT
    taken: int = 0

    @property
    def full(self) -> bool:
        return self.taken >= self.most

    @property
    def brim(self) -> int:
        """The level at which all that may be taken is taken."""
        return -(-self.most * _WEIGHT // self.weight)


def plan_batch(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    budget: Budget,
    sizes: Sizes,
    turn: int = 0,
) -> BatchPlan:
    """Share a budget over the partitions that have something new.

    Takes O(n log n) steps for n partitions, whatever their backlogs.

    Args:
        positions: the next offset to read of every partition that is owned.
        ends: the end of each one's log (of what may be read); a partition whose end is not
            known is left for the next plan_batch, and ends of others are looked over.
        budget: what the plan may use.
        sizes: what an offset is likely to bring; matters only where bytes are limited.
        turn: a number that rises by one from plan to plan_batch.
    """
    order = sorted(positions)
    shares: list[_Share] = []
    beyond: list[Beyond] = []
    lag = 0
    for name in _rotated(order, turn):
        backlog = ends.get(name, positions[name]) - positions[name]
        if backlog < 0:
            beyond.append(Beyond(name, positions[name], ends[name]))
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
    """All owned partitions, from the one whose turn it is.

    Counted over all, not over those with something new: their number changes from plan to
    plan_batch,
    and a partition could miss its turn each time.
    """
    first = turn % len(order) if order else 0
    return order[first:] + order[:first]


def _share(name: TopicPartition, backlog: int, budget: Budget, sizes: Sizes) -> _Share:
    if budget.bytes is None:
        return _Share(name, most=backlog, cost=0)
    return _Share(name, most=min(backlog, sizes.most(name)), cost=sizes.offset_bytes(name))


def _fill(shares: list[_Share], budget: Budget) -> None:
    """Set what is taken of each; the shares come in the order of their turns."""
    if not shares:
        return
    _weigh(shares, budget)
    left = _pour(shares, budget)
    first, others = shares[0], shares[1:]
    if not first.taken:
        # What it would have got is less than an offset: it gets one, and the rest share the rest.
        for share in others:
            share.taken = 0
        first.taken = 1
        shares = others
        left = _pour(others, _less(budget, first))
    _hand_out(shares, left)


def _weigh(shares: list[_Share], budget: Budget) -> None:
    """Set how fast each one's offsets rise: the slower, the more of the budget an offset uses."""
    if budget.bytes is None:
        return
    # An offset uses 1/records of the one and cost/bytes of the other; both times records x bytes.
    records = budget.records if budget.records is not None else 1
    least = budget.bytes if budget.records is not None else 0
    used = [max(least, share.cost * records) for share in shares]
    cheapest = min(used)
    for share, use in zip(shares, used, strict=True):
        share.weight = max(1, _WEIGHT * cheapest // use)


def _pour(shares: list[_Share], budget: Budget) -> Budget:
    """Raise the level of all shares until the budget holds no more; tell what is left of it."""
    waiting = sorted(shares, key=lambda share: share.brim)
    weights = sum(share.weight for share in waiting)
    weighted_cost = sum(share.weight * share.cost for share in waiting)
    left = budget
    for number, share in enumerate(waiting):
        level = _level(left, weights, weighted_cost, share.brim)
        if level < share.brim:
            for dry in waiting[number:]:
                dry.taken = min(dry.most, level * dry.weight // _WEIGHT)
                left = _less(left, dry, dry.taken)
            break
        share.taken = share.most
        left = _less(left, share, share.taken)
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


def _hand_out(shares: list[_Share], left: Budget) -> None:
    """Give what rounding left over, an offset each and in turn."""
    for share in shares:
        if left.spent:
            return
        if not share.full and (left.bytes is None or share.cost <= left.bytes):
            share.taken += 1
            left = _less(left, share)


def _less(budget: Budget, share: _Share, offsets: int = 1) -> Budget:
    return Budget(
        None if budget.records is None else budget.records - offsets,
        None if budget.bytes is None else budget.bytes - offsets * share.cost,
    )
