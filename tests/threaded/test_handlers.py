"""Handler threads as the generation's tasks see them."""

from __future__ import annotations

import contextvars
import functools

import pytest
import trio

from kgroup.threaded.event_loop import BackgroundLoop
from kgroup.threaded.handlers import Handler
from kgroup.types import TopicPartition


def handler_for(fn: object) -> Handler:
    """A handler whose thread has not begun, beside a loop that has not."""
    loop = BackgroundLoop("idle", trio.sleep_forever, int)
    return Handler(loop, "group", contextvars.copy_context(), fn)  # type: ignore[arg-type]


async def test_what_was_raised_as_the_task_is_cancelled() -> None:
    """A thread that raises as its generation is cancelled is told by its task, not lost."""
    handler = handler_for(print)
    handler.error = ZeroDivisionError("just in time")
    with pytest.raises(ZeroDivisionError), trio.CancelScope() as scope:
        scope.cancel()
        await handler.attend()
    assert handler.untold is None


async def test_a_cancelled_task_leaves_its_thread() -> None:
    """A cancelled task is cancelled; what the thread raises later is untold."""
    handler = handler_for(print)
    with trio.CancelScope() as scope:
        scope.cancel()
        await handler.attend()
    assert scope.cancelled_caught
    handler.error = ZeroDivisionError("late")
    assert handler.untold is handler.error


def test_names() -> None:
    """A thread is named after its group, its function and the partitions it was given."""
    taken: list[object] = []
    handler = handler_for(taken.append)
    handler.start((TopicPartition("t", 1),))
    handler.thread.join()
    assert handler.thread.name == "kgroup-group-list.append(t-1)"
    assert handler.stack == "(nowhere any more)"
    assert taken == [TopicPartition("t", 1)]
    handler = handler_for(functools.partial(taken.clear))
    assert handler.name.startswith("functools.partial(")
