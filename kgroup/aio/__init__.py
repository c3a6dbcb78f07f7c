"""The same group for asyncio programs: ``async for generation in group``, with tasks of asyncio.

It wraps ``kgroup.ConsumerGroup``, which runs on a background thread, and makes no decision about
the group itself. ``bridge`` carries calls to that thread and results back; ``tasks`` has the
program's tasks; ``group``, ``generation`` and ``records`` have the classes that programs use;
``worker`` and ``retries`` have workers in few lines. It uses only the standard API of asyncio, so
that it runs on every event loop that implements that.
"""

from __future__ import annotations

from kgroup.aio.generation import Generation
from kgroup.aio.group import ConsumerGroup
from kgroup.aio.records import Records
from kgroup.aio.retries import retrying
from kgroup.aio.worker import run, serve

__all__ = ["ConsumerGroup", "Generation", "Records", "retrying", "run", "serve"]


def __dir__() -> list[str]:
    """The public names: completion shows none of the modules that define them."""
    return sorted(__all__)
