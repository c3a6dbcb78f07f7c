"""The event by which a generation says that it begins to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, NoReturn, final

from kgroup.errors import UsageError


@final
class Ending(asyncio.Event):
    """An ``asyncio.Event`` that kgroup sets once.

    Args:
        has_begun: whether the end has begun. A function that has blocked asyncio's loop sees it at
            once, before that loop can wake those who wait.
    """

    def __init__(self, has_begun: Callable[[], bool]) -> None:
        super().__init__()
        self._has_begun = has_begun

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._has_begun()

    async def wait(self) -> Literal[True]:
        """Wait until it is set."""
        if not self.is_set():
            await super().wait()
        return True

    def clear(self) -> NoReturn:
        """Refuse: the event cannot be cleared.

        Raises:
            UsageError: always.
        """
        raise UsageError("this event stays set: a generation that ends does not begin again")
