"""The same group for programs without an event loop: ``for generation in group``, in threads.

A skin over ``kgroup.ConsumerGroup``, which runs on a background thread; nothing here decides
anything about the group. ``loop`` carries calls there and outcomes back; ``group``,
``generation`` and ``records`` are what programs hold; ``handlers`` are the program's threads.
"""

from __future__ import annotations

from kgroup.threaded.generation import Generation
from kgroup.threaded.group import ConsumerGroup
from kgroup.threaded.records import Records

__all__ = ["ConsumerGroup", "Generation", "Records"]
