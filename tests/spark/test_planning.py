"""Plans: fair, within the budget, never stuck, with a report of what cannot be read."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.spark.batch_limits import Budget
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.planning import BatchPlan, PositionBeyondEnd, plan_batch
from kgroup.spark.size_estimates import LEAST, ReadCounts, SizeEstimates
from kgroup.types import TopicPartition

KNOWN: Final = SizeEstimates()
NAMES: Final = [TopicPartition("t", number) for number in range(12)]
P0, P1, P2, P3 = NAMES[:4]

backlogs = st.lists(st.integers(0, 10_000) | st.integers(0, 2**40), max_size=12)
costs = st.lists(st.integers(LEAST, 5000) | st.integers(LEAST, 2**22), min_size=12, max_size=12)
budgets = st.builds(
    Budget,
    st.none() | st.integers(1, 50) | st.integers(1, 2**41),
    st.none() | st.integers(1, 5000) | st.integers(1, 2**50),
)


def logs(backlog: list[int]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Positions and ends; positions differ, so that they cannot be mistaken for lengths."""
    positions = {NAMES[number]: 7 * number for number in range(len(backlog))}
    return positions, {
        name: positions[name] + new for name, new in zip(positions, backlog, strict=True)
    }


def sized(each: list[int]) -> SizeEstimates:
    """Estimates of this many bytes an offset, with no bound from earlier reads."""
    wide = 2**45
    ranges = [OffsetRange("t", number, 0, wide) for number in range(len(each))]
    return SizeEstimates().after(
        ranges, {NAMES[number]: ReadCounts(wide, wide * size) for number, size in enumerate(each)}
    )


def taken(planned: BatchPlan) -> dict[TopicPartition, int]:
    """The number of offsets by partition."""
    return {
        TopicPartition(part.topic, part.partition): part.end - part.start for part in planned.ranges
    }


@pytest.mark.parametrize(
    ("backlog", "records", "turn", "shares"),
    [
        ([5, 5, 5], None, 0, [5, 5, 5]),
        ([5, 0, 5], 100, 0, [5, 0, 5]),
        ([2, 100, 100], 22, 0, [2, 10, 10]),
        ([100, 1, 2], 9, 0, [6, 1, 2]),
        ([100, 100, 100], 10, 0, [4, 3, 3]),
        ([100, 100, 100], 10, 1, [3, 4, 3]),
        ([100, 100, 100], 11, 2, [4, 3, 4]),
        ([100, 100, 100, 100], 2, 3, [1, 0, 0, 1]),
        ([0, 100, 100, 100], 1, 0, [0, 1, 0, 0]),
        ([], 5, 0, []),
    ],
)
def test_small_backlogs_are_taken_whole_and_the_rest_share(
    backlog: list[int], records: int | None, turn: int, shares: list[int]
) -> None:
    """Partitions whose turn it is get the remainder."""
    positions, ends = logs(backlog)
    planned = plan_batch(positions, ends, Budget(records), KNOWN, turn)
    assert [taken(planned).get(name, 0) for name in positions] == shares
    assert [(part.topic, part.partition, part.start) for part in planned.ranges] == [
        (name.topic, name.partition, positions[name])
        for name, share in zip(positions, shares, strict=True)
        if share
    ]
    assert planned.lag == sum(backlog) - sum(shares)
    assert planned.offsets == sum(shares)


def test_large_records_of_one_do_not_take_the_bytes_of_all() -> None:
    """If only bytes are limited, each partition gets the same number of bytes."""
    positions, ends = logs([10**6] * 3)
    planned = plan_batch(positions, ends, Budget(None, 301_000), sized([100, 1000, 10_000]))
    assert taken(planned) == {P0: 1004, P1: 100, P2: 10}


def test_each_partition_is_limited_by_the_resource_it_uses_most() -> None:
    """Records limit partitions with small records, bytes those with large ones."""
    positions, ends = logs([10**6] * 2)
    planned = plan_batch(positions, ends, Budget(1000, 1_000_000), sized([100, 10_000]))
    assert taken(planned) == {P0: 910, P1: 90}


def test_a_record_larger_than_the_limit_is_a_batch() -> None:
    """Otherwise the partition would never be read; the others wait for their turn."""
    positions, ends = logs([5, 5])
    huge = sized([1000, 1000])
    assert taken(plan_batch(positions, ends, Budget(None, 10), huge, 0)) == {P0: 1}
    assert taken(plan_batch(positions, ends, Budget(None, 10), huge, 1)) == {P1: 1}


def test_large_records_beside_small_ones_have_their_turn() -> None:
    """A partition whose share is less than one record gets one record when its turn comes."""
    positions, ends = logs([10**6] * 3)
    each = sized([900, 100, 100])
    assert taken(plan_batch(positions, ends, Budget(None, 1000), each, 0)) == {P0: 1, P1: 1}
    assert P0 not in taken(plan_batch(positions, ends, Budget(None, 1000), each, 1))


@pytest.mark.parametrize("budget", [Budget(0), Budget(None, 0), Budget(-3, 10), Budget(5, -1)])
def test_a_spent_budget_plans_nothing_and_still_has_the_lag(budget: Budget) -> None:
    """A plan that waits for the rate limit still reports the lag."""
    assert plan_batch({P0: 3}, {P0: 10}, budget, KNOWN) == BatchPlan((), 7)


def test_a_position_past_the_end_is_reported() -> None:
    """The partition is reported in the plan and not planned; others lose nothing."""
    planned = plan_batch({P0: 10, P1: 5, P2: 0}, {P0: 4, P1: 4, P2: 3}, Budget(2), KNOWN, 1)
    assert planned == BatchPlan(
        (OffsetRange("t", 2, 0, 2),), 1, (PositionBeyondEnd(P0, 10, 4), PositionBeyondEnd(P1, 5, 4))
    )
    assert str(planned.beyond[0]) == "t-0 is at 10, but its log ends at 4"


def test_partitions_without_a_known_end_are_left_out() -> None:
    """They wait for the next plan; ends of partitions that are not owned are ignored."""
    assert plan_batch({P0: 1, P1: 1}, {P1: 3, P3: 9}, Budget(), KNOWN) == BatchPlan(
        (OffsetRange("t", 1, 1, 3),)
    )


def test_no_new_records_make_an_empty_plan() -> None:
    """The plan has no range and no lag, so that no Spark job runs."""
    assert plan_batch({P0: 4}, {P0: 4}, Budget(10, 10), KNOWN) == BatchPlan()
    assert plan_batch({}, {}, Budget(10, 10), KNOWN) == BatchPlan()


def test_ranges_are_sorted_by_topic_and_number() -> None:
    """The plan is sorted, whatever the order of the positions and the turn."""
    names = [TopicPartition("b", 2), TopicPartition("a", 10), TopicPartition("a", 9)]
    planned = plan_batch(dict.fromkeys(names, 0), dict.fromkeys(names, 1), Budget(), KNOWN, 2)
    assert [(part.topic, part.partition) for part in planned.ranges] == [
        ("a", 9),
        ("a", 10),
        ("b", 2),
    ]


@given(backlogs, costs, budgets, st.integers(0, 100))
def test_a_plan_keeps_to_the_budget_and_makes_progress(
    backlog: list[int], each: list[int], budget: Budget, turn: int
) -> None:
    """A plan never passes an end or the budget, and is not empty if there are new records."""
    positions, ends = logs(backlog)
    sizes = sized(each)
    planned = plan_batch(positions, ends, budget, sizes, turn)
    for part in planned.ranges:
        name = TopicPartition(part.topic, part.partition)
        assert positions[name] == part.start < part.end <= ends[name]
    assert list(planned.ranges) == sorted(set(planned.ranges))
    assert planned.offsets + planned.lag == sum(backlog)
    assert budget.records is None or planned.offsets <= budget.records
    assert (
        budget.bytes is None
        or planned.offsets == 1
        or sizes.estimated_bytes(planned.ranges) <= budget.bytes
    )
    assert bool(planned.ranges) == any(backlog)
    assert plan_batch(dict(reversed(positions.items())), ends, budget, sizes, turn) == planned


@given(backlogs, st.integers(1, 50) | st.integers(1, 2**41), st.integers(0, 100))
def test_records_are_shared_by_max_min(backlog: list[int], records: int, turn: int) -> None:
    """A partition that gets less than its backlog gets at most one less than any other."""
    positions, ends = logs(backlog)
    shares = taken(plan_batch(positions, ends, Budget(records), KNOWN, turn))
    assert sum(shares.values()) == min(records, sum(backlog))
    wanting = [name for name in positions if shares.get(name, 0) < ends[name] - positions[name]]
    if wanting:
        assert max(shares.values()) <= min(shares.get(name, 0) for name in wanting) + 1


@given(backlogs, costs, budgets, st.integers(0, 100))
def test_budgets_are_shared_by_max_min(
    backlog: list[int], each: list[int], budget: Budget, turn: int
) -> None:
    """A partition with a backlog left uses no less than another, except for rounding and turns."""
    positions, ends = logs(backlog)
    shares = taken(plan_batch(positions, ends, budget, sized(each), turn))

    def used(name: TopicPartition, offsets: int) -> float:
        by_number = offsets / budget.records if budget.records else 0.0
        size = each[NAMES.index(name)]
        return max(by_number, offsets * size / budget.bytes if budget.bytes else 0.0)

    for name in positions:
        mine = shares.get(name, 0)
        if mine < ends[name] - positions[name]:
            for other, theirs in shares.items():
                # One offset was given out; one of this partition and its weight were rounded down.
                least = used(other, theirs - 1) * (1 - 1e-3)
                assert least <= used(name, mine + 2), (name, other)


@given(
    rounds=st.lists(st.integers(0, 2**12 - 1), min_size=12, max_size=12),
    each=costs,
    budget=st.builds(Budget, st.integers(1, 12), st.none() | st.integers(1, 10_000)),
    starved=st.integers(0, 11),
    first=st.integers(0, 1000),
)
def test_no_partition_starves(
    rounds: list[int], each: list[int], budget: Budget, starved: int, first: int
) -> None:
    """A partition with new records is read within 12 plans, whatever the other backlogs are."""
    positions = dict.fromkeys(NAMES, 0)
    served = False
    for turn, others in enumerate(rounds, first):
        ends = {name: 100 * (others >> name.partition & 1) for name in NAMES}
        ends[NAMES[starved]] = 1
        served |= NAMES[starved] in taken(plan_batch(positions, ends, budget, sized(each), turn))
    assert served


def test_a_few_records_go_round_evenly() -> None:
    """After as many plans as there are partitions, each got the same number."""
    positions, ends = logs([100] * 12)
    had = dict.fromkeys(NAMES, 0)
    for turn in range(12):
        for name, count in taken(plan_batch(positions, ends, Budget(5), KNOWN, turn)).items():
            had[name] += count
    assert had == dict.fromkeys(NAMES, 5)


def test_as_many_partitions_as_a_member_may_own() -> None:
    """Twenty thousand partitions are planned at once: the steps do not grow with backlogs."""
    names = [TopicPartition("t", number) for number in range(20_000)]
    ends = {name: 2**40 + name.partition for name in names}
    planned = plan_batch(dict.fromkeys(names, 0), ends, Budget(2**50, 2**60), SizeEstimates())
    assert len(planned.ranges) == 20_000
