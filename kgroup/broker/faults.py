"""Injected faults of one broker: errors, delays, silence.

A fault is planned in advance and applied to requests as they come. ``kgroup.broker.connection``
applies the faults before it serves a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs
import trio

from kgroup import arguments
from kgroup.bounds import did_you_mean
from kgroup.broker.apis import APIS
from kgroup.error_codes import ErrorCode
from kgroup.errors import ArgumentError
from kgroup.wire.versions import kafka_name

_INT16_END: Final = 2**15
Match = Callable[[Any], bool]
"""Takes kio's dataclass of a request."""


def _any(request: object) -> bool:
    del request
    return True


def _api_of(name: str) -> str:
    """kio's name of an API, of this or of Kafka's name (``heartbeat``, ``Heartbeat``)."""
    arguments.instance("api", name, str)
    if name in APIS:
        return name
    names = {kafka_name(api): api for api in APIS}
    if name in names:
        return names[name]
    near = did_you_mean(name, names)
    raise ValueError(f"there is no API {name!r}{near}; there are {', '.join(sorted(names))}")


def code_of(error: int | str) -> int:
    """Kafka's number of an error, of this or of its name.

    A number may be one that this release does not know, as a newer broker's may be.

    Raises:
        ArgumentError: a number is that of no error, or cannot be in a response.
        ValueError: there is no error of this name.
    """
    number: object = error
    if isinstance(error, str):
        if error not in ErrorCode.__members__:
            near = did_you_mean(error, ErrorCode.__members__)
            raise ValueError(
                f"there is no error {error!r}{near}; name it as Kafka does, such as NOT_COORDINATOR"
            )
        number = ErrorCode[error].value
    code = arguments.whole("error_code", number, -_INT16_END, _INT16_END - 1)
    if code == ErrorCode.NONE:
        raise ArgumentError("error_code", error, "it must be an error; NONE stands for success")
    return code


@final
@attrs.define(eq=False)
class InjectedFault:
    """A fault of the next requests that match; ``cancel`` ends it.

    Attributes:
        api: kio's name of the API, or None for every one.
        times: to how many further requests it applies; None for all.
        match: returns whether the fault applies to a request.
        error_code: the error that is answered instead of serving the request, or None.
        delay: seconds before the request is served.
        seen: to how many requests it was applied.
    """

    api: str | None
    times: int | None
    match: Match
    error_code: int | None = None
    delay: float = 0.0
    seen: int = 0

    def cancel(self) -> None:
        """Apply it to no further request."""
        self.times = 0

    def apply(self) -> None:
        """Count one request to which it was applied."""
        self.seen += 1
        if self.times is not None:
            self.times -= 1

    @property
    def is_over(self) -> bool:
        """Whether it applies to no further request."""
        return self.times is not None and self.times <= 0


@final
class InjectedFaults:
    """The faults of one broker, and whether it is reachable at all."""

    def __init__(self) -> None:
        self._planned: list[InjectedFault] = []
        self._reachable = trio.Event()
        self._reachable.set()

    def plan(
        self,
        api: str | None,
        *,
        error_code: int | str | None = None,
        delay: float = 0.0,
        times: int | None = None,
        match: Match | None = None,
    ) -> InjectedFault:
        """Plan a fault. If several match a request, their delays add up and the first error counts.

        Raises:
            ValueError: the broker does not offer the API, or there is no error of this name.
            ArgumentError: a delay is no number of seconds, an error is none, ``times`` is neither
                None nor a whole number from 1 on, or ``match`` is no function.
        """
        arguments.delay("seconds", delay)
        arguments.callback("match", match)
        if times is not None:
            arguments.whole("times", times, 1)
        name = None if api is None else _api_of(api)
        code = None if error_code is None else code_of(error_code)
        fault = InjectedFault(name, times, match or _any, code, delay)
        self._planned.append(fault)
        return fault

    def apply(self, api: str, request: Any) -> tuple[float, int | None]:
        """Apply the faults that match a request.

        Returns:
            the seconds that it has to wait, and the error to answer or None.
        """
        delay, error_code = 0.0, None
        for fault in self._planned:
            spent = fault.is_over or (fault.error_code is not None and error_code is not None)
            if spent or fault.api not in (None, api) or not fault.match(request):
                continue
            fault.apply()
            delay += fault.delay
            error_code = error_code if fault.error_code is None else fault.error_code
        self._planned = [fault for fault in self._planned if not fault.is_over]
        return delay, error_code

    def set_reachable(self, *, reachable: bool) -> None:
        """While the broker is not reachable, connections stay open and no byte moves."""
        if reachable:
            self._reachable.set()
        elif self._reachable.is_set():
            self._reachable = trio.Event()

    async def wait_reachable(self) -> None:
        """Wait until the broker is reachable."""
        if not self._reachable.is_set():
            await self._reachable.wait()
