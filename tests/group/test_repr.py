"""The repr of a group in each of its states."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.group.harness import harness


async def test_repr_shows_id_and_state(autojump_clock: MockClock) -> None:
    """The id, and whether the group is entered, joins, owns a generation, closes or has closed."""
    async with harness() as here:
        group = here.group()
        assert repr(group) == "<ConsumerGroup 'group', not entered>"
        async with group:
            assert repr(group) == "<ConsumerGroup 'group', joining>"
            generation = await group.next()
            assert repr(group) == "<ConsumerGroup 'group', 'running'>"
            generation.start_soon(trio.sleep, 5)
            generation.start_soon(trio.sleep, 1)
            await generation.ending.wait()
            assert repr(group) == "<ConsumerGroup 'group', 'draining'>"
            group.shutdown()
            assert repr(group) == "<ConsumerGroup 'group', closing>"
        await group.wait_closed()
        assert repr(group) == "<ConsumerGroup 'group', closed>"
        assert group.config.group_id == "group"
