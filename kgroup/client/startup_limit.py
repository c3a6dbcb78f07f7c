"""``StartupLimit``: how long a member tries to reach its coordinator for the first time.

By default a member tries for ever, because brokers that are away come back. A program that would
rather end, and be started again or looked at, sets ``startup_timeout``.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import trio

from kgroup.errors import BrokerError, StartupTimeoutError, TransportError

T = TypeVar("T")

_SILENT: Final = (
    "no attempt has ended: a host or a broker does not answer, or a port belongs to another"
    " listener (TLS, a login) or to another program than Kafka"
)
"""For a time that was over before the first attempt's request timed out."""


@final
class StartupLimit:
    """The limit of one member; it begins when it is made.

    Args:
        group_id: the group.
        servers: the bootstrap servers, for the error.
        timeout: the seconds; None means no limit.
        report: called with the text of the error when the time is over. By then the log has said
            only that the last request is sent again, and the program may see the error much later.
    """

    def __init__(
        self,
        group_id: str,
        servers: tuple[str, ...],
        timeout: float | None,
        report: Callable[[str], object],
    ) -> None:
        self._group_id = group_id
        self._servers = servers
        self._timeout = timeout
        self._report = report
        self._deadline = math.inf if timeout is None else trio.current_time() + timeout
        self._failures = 0
        self._last: BrokerError | TransportError | None = None

    def over(self) -> None:
        """The coordinator has answered: from now on there is no limit."""
        self._deadline = math.inf

    def failed(self, error: BrokerError | TransportError) -> None:
        """Count a failure, and remember it for the error."""
        self._failures += 1
        self._last = error

    def check(self) -> None:
        """Raise if the time is over.

        Raises:
            StartupTimeoutError: it is.
        """
        if trio.current_time() >= self._deadline:
            raise self._error() from self._last

    async def within(self, step: Callable[[], Awaitable[T]]) -> T:
        """Call a function, for as long as there is time, and return its result.

        Raises:
            StartupTimeoutError: the time was over before it returned.

        Cancellation: that of the function, which is cancelled too when the time is over.
        """
        with trio.move_on_at(self._deadline):
            return await step()
        raise self._error() from self._last

    def _error(self) -> StartupTimeoutError:
        # An error's hint is at the end of its text, next to the general advice.
        hinted = isinstance(self._last, TransportError) and self._last.hint
        tried = f"{self._failures} attempts failed, the last one with: {self._last}"
        error = StartupTimeoutError(
            f"the coordinator of group {self._group_id!r} was not reached within"
            f" {self._timeout:g} s (startup_timeout), from {', '.join(self._servers)}:"
            f" {tried if self._failures else _SILENT}."
            f" {'Otherwise check' if hinted else 'Check'} that the brokers run, and that this"
            " machine reaches the addresses that they advertise"
        )
        self._report(str(error))
        return error
