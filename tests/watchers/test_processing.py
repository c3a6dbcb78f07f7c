"""The processing watcher: a handler that is stuck in one batch."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.types import Cause
from kgroup.watchers.processing import processing_watcher


@pytest.mark.parametrize("begun", [0.0, 3.0, 9.9])
async def test_a_batch_held_too_long_ends_the_generation(
    autojump_clock: MockClock, begun: float
) -> None:
    """The end comes within a tenth of the limit, whenever it began, and says what helps."""
    start = trio.current_time()

    def held() -> list[float]:
        return [0.0, max(0.0, trio.current_time() - start - begun)]

    end = await processing_watcher(held, 10.0)
    late = trio.current_time() - start - begun - 10
    assert 0 < late <= 1.0001
    assert end.cause is Cause.PROCESSING_STUCK
    assert "longer than max_processing_time (10 s)" in end.detail
    assert "a smaller max_records, or the group a longer max_processing_time" in end.detail


async def test_quick_handlers_are_not_stuck(autojump_clock: MockClock) -> None:
    """Without streams, and with quick handlers, the watcher ends nothing."""
    start = trio.current_time()
    with trio.move_on_after(1000) as scope:
        await processing_watcher(list, 10.0)
    assert scope.cancelled_caught
    with trio.move_on_after(1000) as scope:
        await processing_watcher(lambda: [(trio.current_time() - start) % 10], 10.0)
    assert scope.cancelled_caught
