"""The wrong kind of block or loop around a group: the error says what to write."""

from __future__ import annotations

from typing import Any

import pytest

import kgroup.aio
import kgroup.threaded
from kgroup.errors import UsageError

CONFIG = kgroup.GroupConfig(bootstrap_servers="localhost:9", group_id="orders", topics=["orders"])
ASYNC = (
    "^group 'orders' has no `{}`: enter it by `async with`, .*`async for`;"
    " .*kgroup.threaded.ConsumerGroup"
)
PLAIN = (
    "^group 'orders' has no `{}`: enter it by `with`, .*"
    " kgroup.ConsumerGroup, on trio, and kgroup.aio.ConsumerGroup, on asyncio"
)


@pytest.mark.parametrize("kind", [kgroup.ConsumerGroup, kgroup.aio.ConsumerGroup])
def test_plain_blocks_of_an_async_group(kind: Any) -> None:
    """`with` and `for` name `async with` and `async for`, and the group that has plain ones."""
    group = kind(CONFIG)
    with pytest.raises(UsageError, match=ASYNC.format("with")), group:
        pass
    with pytest.raises(UsageError, match=ASYNC.format("for")):
        for _ in group:
            pass


async def test_async_blocks_of_a_group_of_threads() -> None:
    """`async with` and `async for` name the plain ones, and the groups that have async ones."""
    group: Any = kgroup.threaded.ConsumerGroup(CONFIG)
    with pytest.raises(UsageError, match=PLAIN.format("async with")):
        async with group:
            pass
    with pytest.raises(UsageError, match=PLAIN.format("async for")):
        async for _ in group:
            pass
