"""What can be made to go wrong on purpose: errors, slowness, silence.

A fault is told in advance and happens to requests as they come. Connections and listeners are
the server's; here is only what is planned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import attrs
import trio

from kgroup.broker.apis import APIS

Match = Callable[[Any], bool]
"""Takes kio's dataclass of a request."""


def _any(request: object) -> bool:
    del request
    return True


@final
@attrs.define(eq=False)
class Fault:
    """Something that happens to the next requests that match; ``cancel`` takes it back.

    Attributes:
        api: kio's name of the API, or None for every one.
        times: how many requests are left that it happens to, or None for all to come.
        match: says of a request whether it is meant.
        error_code: what it is answered with instead of being served, or None.
        delay: seconds before it is served.
        seen: how many requests it has happened to.
    """

    api: str | None
    times: int | None
    match: Match
    error_code: int | None = None
    delay: float = 0.0
    seen: int = 0

    def cancel(self) -> None:
        """It happens to no further request."""
        self.times = 0

    @property
    def is_over(self) -> bool:
        """Whether it happens no more."""
        return self.times is not None and self.times <= 0


@final
class Faults:
    """The faults of one broker, and whether it can be reached at all."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self._reachable = trio.Event()
        self._reachable.set()

    def plan(
        self,
        api: str | None,
        *,
        error_code: int | None = None,
        delay: float = 0.0,
        times: int | None = None,
        match: Match | None = None,
    ) -> Fault:
        """Plan a fault; of several that match a request the first planned happens.

        Raises:
            ValueError: the API is not offered by the broker.
        """
        if api is not None and api not in APIS:
            raise ValueError(f"there is no API {api!r}; there are {', '.join(sorted(APIS))}")
        fault = Fault(api, times, match or _any, error_code, delay)
        self._planned.append(fault)
        return fault

    def strike(self, api: str, request: Any) -> Fault | None:
        """The fault that happens to a request, counted, or None."""
        if not self._planned:
            return None
        self._planned = [fault for fault in self._planned if not fault.is_over]
        for fault in self._planned:
            if fault.api in (None, api) and fault.match(request):
                fault.seen += 1
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def set_reachable(self, *, reachable: bool) -> None:
        """While it is not reachable, connections stay open and no byte moves."""
        if reachable:
            self._reachable.set()
        elif self._reachable.is_set():
            self._reachable = trio.Event()

    async def reachable(self) -> None:
        """Wait until the broker can be reached."""
        if not self._reachable.is_set():
            await self._reachable.wait()
