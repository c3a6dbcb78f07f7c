"""The sticky assignor, against Kafka's answers and for what must always hold."""

from __future__ import annotations

import pytest

from kgroup.assignors.sticky import StickyAssignor
from tests.assignors.golden import Line, golden


@pytest.mark.parametrize(
    "line", [line for line in golden("sticky") if line.exact], ids=lambda line: line.name
)
def test_equals_kafka(line: Line) -> None:
    """Every member gets what Kafka's StickyAssignor gives it."""
    answer = StickyAssignor().assign(line.topics, line.members)
    assert {member: frozenset(partitions) for member, partitions in answer.items()} == line.answer
