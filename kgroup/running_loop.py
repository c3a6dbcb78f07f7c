"""Which library's event loop runs in this thread, for errors that say which group to use."""

from __future__ import annotations

import sys
from contextlib import suppress

import trio


def running_library() -> str | None:
    """``trio``, ``asyncio``, or None where no event loop of them runs."""
    if trio.lowlevel.in_trio_run():
        return "trio"
    # A program whose asyncio loop runs has imported asyncio; others need not.
    if (asyncio := sys.modules.get("asyncio")) is not None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return "asyncio"
    return None


def group_for(library: str | None) -> str:
    """What to use under such an event loop, as the end of a sentence."""
    return {
        "trio": "in a trio program, use kgroup.ConsumerGroup",
        "asyncio": "in an asyncio program, use kgroup.aio.ConsumerGroup",
        None: "in a program without an event loop, use kgroup.threaded.ConsumerGroup",
    }[library]
