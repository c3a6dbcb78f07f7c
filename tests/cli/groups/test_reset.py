"""Plans to reset offsets."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.cli.admin_client import NO_OFFSET, Refusal
from kgroup.cli.groups.reset import plan_reset
from kgroup.cli.log_bounds import LogBounds
from kgroup.cli.position_options import position_or_shift
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

ANY: Any = None
P = TopicPartition("orders", 0)
MOMENT = "2026-10-01T12:00:00Z"
REFUSAL = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")


@pytest.mark.parametrize(
    ("to", "committed", "at_time", "target", "note"),
    [
        ("earliest", 50, None, 10, ""),
        ("latest", None, None, 100, ""),
        ("40", 50, None, 40, ""),
        ("5", 50, None, 10, "5 is not in the log: it begins at 10"),
        ("500", 50, None, 100, "500 is not in the log: it ends at 100"),
        ("+7", 50, None, 57, ""),
        ("-7", 50, None, 43, ""),
        ("-70", 50, None, 10, "-20 is not in the log: it begins at 10"),
        ("+70", 50, None, 100, "120 is not in the log: it ends at 100"),
        ("-7", None, None, None, "stays: nothing is committed to shift from"),
        (MOMENT, 50, 77, 77, ""),
        (MOMENT, 50, NO_OFFSET, 100, "no record is so recent: the end"),
        (
            MOMENT,
            50,
            REFUSAL,
            None,
            "stays: TOPIC_AUTHORIZATION_FAILED: grant the user DESCRIBE on topic 'orders'",
        ),
    ],
)
def test_where_a_partition_goes(
    to: str, committed: int | None, at_time: int | Refusal | None, target: int | None, note: str
) -> None:
    """The target is within the log, and a note says where it differs from what was requested."""
    position = position_or_shift(ANY, ANY, to)
    assert position is not None
    offsets = {} if committed is None else {P: committed}
    times = {} if at_time is None else {P: at_time}
    (change,) = plan_reset(position, offsets, {P: LogBounds(10, 100)}, times)
    assert (change.target, change.note) == (target, note)
    both = target is not None and committed is not None
    assert change.moves == (target - committed if both else None)  # type: ignore[operator]


def test_a_partition_whose_log_is_not_known_stays() -> None:
    """What is committed for a deleted topic is left as it is."""
    position = position_or_shift(ANY, ANY, "earliest")
    assert position is not None
    (change,) = plan_reset(position, {P: 5}, {P: LogBounds(fault="no such partition")}, {})
    assert (change.target, change.note) == (None, "stays: no such partition")
