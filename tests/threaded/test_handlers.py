"""Handler threads as the generation's tasks see them."""

from __future__ import annotations

import contextvars
import functools

import pytest
import trio

from kgroup.background.event_loop import BackgroundLoop
from kgroup.threaded.handlers import Handler
from kgroup.types import Membership, TopicPartition


def handler_for(fn: object, *args: object) -> Handler:
    """A handler and a loop whose threads have not started."""
    loop = BackgroundLoop("idle", trio.sleep_forever, int)
    membership = Membership(
        group_id="group",
        member_id="m",
        group_instance_id=None,
        generation_id=1,
        epoch=1,
        assignor="range",
        leader=True,
    )
    return Handler(loop, membership, contextvars.copy_context(), fn, *args)  # type: ignore[arg-type]


async def test_an_exception_as_the_task_is_cancelled() -> None:
    """If a thread raises as its generation is cancelled, its task raises the exception."""
    handler = handler_for(print)
    handler.call.error = ZeroDivisionError("just in time")
    with pytest.raises(ZeroDivisionError), trio.CancelScope() as scope:
        scope.cancel()
        await handler.wait_as_task()
    assert handler.unraised_error is None


async def test_a_cancelled_task_leaves_its_thread() -> None:
    """The task is cancelled; the exception that the thread raises later is still to be raised."""
    handler = handler_for(print)
    with trio.CancelScope() as scope:
        scope.cancel()
        await handler.wait_as_task()
    assert scope.cancelled_caught
    handler.call.error = ZeroDivisionError("late")
    assert handler.unraised_error is handler.call.error


def test_names() -> None:
    """A thread is named after its group, its function and the partitions it was given."""
    taken: list[object] = []
    handler = handler_for(taken.append, TopicPartition("t", 1))
    handler.start()
    handler.thread.join()
    assert handler.thread.name == "kgroup-group-list.append(t-1)"
    assert handler.stack == "(the thread has ended)"
    assert taken == [TopicPartition("t", 1)]
    handler = handler_for(functools.partial(taken.clear))
    assert handler.name.startswith("functools.partial(")
