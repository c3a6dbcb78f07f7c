"""What the members of an event loop share."""

from __future__ import annotations

from typing import Final

import pytest
import trio
from trio.lowlevel import RunVar

from kgroup.loop_local import loop_local

SHARED: Final = RunVar[list[int]]("test_loop_local")


def test_each_event_loop_has_its_own() -> None:
    """All who ask in one event loop get the same object, and another event loop another one."""

    async def ask_twice() -> tuple[list[int], list[int]]:
        return loop_local(SHARED, list), loop_local(SHARED, list)

    first, again = trio.run(ask_twice)
    other, _ = trio.run(ask_twice)
    assert first is again
    assert other is not first


def test_there_is_none_without_an_event_loop() -> None:
    """Outside of an event loop nothing is made."""
    with pytest.raises(RuntimeError):
        loop_local(SHARED, list)
