"""docs/testing.md: the calls that control a broker, as tests make them."""

from __future__ import annotations

import inspect
import re
from typing import Final

from kgroup.broker import in_memory, in_memory_cluster
from tests.conftest import ROOT

PAGE: Final = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
ROW: Final = re.compile(r"^\| (`[^|]+) \| [^|]+ \|$", re.MULTILINE)
CALL: Final = re.compile(r"`(await )?(nodes\[node_id\])?\.?(\w+)\(")


async def test_calls_are_awaited_where_they_have_to_be() -> None:
    """A call without its `await` does nothing, and a test of a fault would test none."""
    _, _, tables = PAGE.partition("A test controls the broker by these calls")
    tables, _, _ = tables.partition("## Embedded, on a port")
    calls = [call for cells in ROW.findall(tables) for call in CALL.findall(cells)]
    assert len(calls) > 20
    async with in_memory() as broker, in_memory_cluster(brokers=2) as cluster:
        for awaited, of_node, name in calls:
            owner = cluster if hasattr(cluster, name) and not of_node else broker
            method = getattr(owner, name)
            assert inspect.iscoroutinefunction(method) == bool(awaited), name
