"""The same group for programs without an event loop: ``for generation in group``, in threads.

It wraps ``kgroup.ConsumerGroup``, which runs on a background thread, and makes no decision about
the group itself. ``event_loop`` carries calls to that thread and results back; ``group``,
``generation`` and ``records`` have the classes that programs use; ``handlers`` has the program's
threads; ``worker`` and ``retries`` have workers in few
lines.
"""

from __future__ import annotations

from kgroup.threaded.generation import Generation
from kgroup.threaded.group import ConsumerGroup
from kgroup.threaded.records import Records
from kgroup.threaded.retries import retrying
from kgroup.threaded.worker import run, serve

__all__ = ["ConsumerGroup", "Generation", "Records", "retrying", "run", "serve"]


def __dir__() -> list[str]:
    """The public names: completion shows none of the modules that define them."""
    return sorted(__all__)
