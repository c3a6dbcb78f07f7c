"""``Logins``: the token, or user name and password, with which both planes of a client log in.

The members of an event loop that have equal `Security` share one of these (`logins_of`), so that an
identity provider is called once for all of them, and for both planes. The program's function is
called

- ahead of time, by `Logins.keep_fresh`: at ``REFRESH_AT`` of a token's lifetime, and again with a
  back-off while the provider is away and the token is still valid;
- by a new connection that logs in, if there is no valid token. User name and password are looked
  up for each new connection;
- once more after a broker has refused what was looked up last.

A function that fails at the start is probably wrong: it is called once more, and then the login has
failed for good. One that has returned a token before is believed to do so again: the identity
provider is away, as a broker may be. Until then no connection can be opened, which is a
`ConnectionLostError` each time. A password that a broker has refused is another matter: librdkafka
sends it twice a second until it gets another one, which may lock the account. So if the function
fails then, the login has failed, as with a wrong password.

A function that is not async and hangs, such as a request without a time-out, cannot be cancelled.
The next attempt calls it again, in another thread, until `MOST_CALLS` of its calls hang.

INVARIANT: nothing calls it to renew the session of a connection, since requests wait meanwhile,
heartbeats among them. A renewal takes what was looked up last.

``latest`` may be read in any thread. All else belongs to the event loop.

Source: KIP-368, KIP-768; Kafka's ``ExpiringCredentialRefreshingLogin`` for the back-off.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from typing import Any, Final, final
from weakref import WeakValueDictionary

import trio

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import AuthenticationError, ConnectionLostError, in_one_line
from kgroup.interfaces import Compute
from kgroup.loop_local import loop_local
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security

REFRESH_AT: Final = 0.8
"""The part of its lifetime after which a token is replaced, as in Kafka's client and librdkafka."""
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 30.0
"""Seconds between two calls of a function that fails; the wait doubles from the first to this."""
LONGEST_LOOKUP: Final = 20.0
"""Seconds for one call of the program's function."""
MOST_CALLS: Final = 3
"""The most calls of a function that is not async, at a time."""
SHORTEST_WAIT: Final = 0.25
"""The least seconds between two calls for a token, however short it lives."""
LONGEST_QUIET: Final = 5.0
"""The most seconds after a failure in which new connections that wait for a token fail too without
another call. The time doubles from `FIRST_WAIT` to this."""
PATIENCE: Final = 5.0
"""The most seconds that a new connection waits for user name and password if others are known; it
waits for half of its own time at most, so that it can log in with these."""
_LONGEST_SLEEP: Final = 30.0
"""Seconds; trio's clock may stand still while the machine is suspended, a token's does not."""
_LONGEST_REASON: Final = 500
"""Characters of what a program's function raised."""
_LONGEST_LIFETIME: Final = 1e9
"""Seconds, some thirty years: a token with a lower `expires_at` was given its lifetime there."""
_THREAD: Final = "kgroup-credentials"

Report = Callable[[str], None]


@final
class LookupFailedError(Exception):
    """The program's function failed; the text says how, without a secret of ours."""


@final
class Logins:
    """What the connections of a client log in with.

    Args:
        security: the settings; their protocol has a login.
        compute: makes what calls functions that are not async.
        now: the present time in seconds since 1970; by default the system's.
    """

    def __init__(
        self,
        security: Security,
        compute: Callable[[], Compute],
        now: Callable[[], float] | None = None,
    ) -> None:
        self._function: Callable[[], Any] | None = security.token or security.credentials
        self._name = "Security.credentials" if security.token is None else "Security.token"
        self._kind: type[Token | Credentials] = Credentials if security.token is None else Token
        self._compute = compute
        self._threads: list[Compute] = []
        self._running: set[int] = set()
        """Which of the threads run the function; they change it themselves."""
        self._now = now or _time_of_day
        self.latest: Token | Credentials | None = security.static_credentials
        """What was looked up last."""
        self._refused: Token | Credentials | None = None
        self._refresh_at = -math.inf
        self._failure = ""
        """What the last call failed with. Its exception may have a secret in its frames."""
        self._quiet = 0.0
        self._quiet_until = -math.inf
        self._looking_up = trio.Lock()
        self._wanted = trio.Event()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._reports: dict[object, Report] = {}

    @property
    def dynamic(self) -> bool:
        """Whether a function of the program is called."""
        return self._function is not None

    @property
    def name(self) -> str:
        """The setting that has the function, for errors."""
        return self._name

    @property
    def usable(self) -> Token | Credentials | None:
        """What was looked up last, unless it is a token that has expired; for any thread."""
        latest = self.latest
        if isinstance(latest, Token) and latest.expires_at <= self._now():
            return None
        return latest

    async def for_new_connection(self) -> Token | Credentials:
        """Look up what a new connection logs in with; a valid token is used again.

        Raises:
            AuthenticationError: there is none, because the program's function fails.
            ConnectionLostError: the last token is over, and the program's function, which has
                returned one before, fails now.

        Cancellation: nothing changes.
        """
        usable = self.usable
        if not self.dynamic or (isinstance(usable, Token) and usable is not self._refused):
            await trio.lowlevel.checkpoint()
            assert usable is not None  # it is static
            return usable
        if usable is None or usable is self._refused:
            return await self._insist(usable)
        # Other ones are known, and may still be right.
        left = trio.current_effective_deadline() - trio.current_time()
        patience = max(0.0, min(PATIENCE, left / 2))
        try:
            with trio.move_on_after(patience):
                return await self._look_up(usable)
            self._report(f"{self._name} takes more than {patience:.3g} s; the last ones are used")
        except LookupFailedError as error:
            self._report(f"{error}; the last ones are used")
        return usable

    def for_renewal(self) -> Token | Credentials | None:
        """What a connection renews its session with: what was looked up last, if it is valid."""
        self.request_lookup()
        return self.usable

    def refuse(self, refused: Token | Credentials) -> None:
        """A broker refused this: it is not used again unless it is looked up again."""
        self._refused = refused

    def request_lookup(self) -> None:
        """Let `keep_fresh` look up user name and password again; a token has its time for that."""
        self._wanted.set()

    def listen(self, key: object, changed: Callable[[], None]) -> None:
        """Call a function, in the event loop, whenever another token or password was looked up."""
        self._listeners[key] = changed

    def forget(self, key: object) -> None:
        """End what `listen` began."""
        self._listeners.pop(key, None)

    async def keep_fresh(self, report: Report) -> None:
        """Look up ahead of time, for as long as the task runs.

        If tasks of several members do so, one of them calls the program's function.

        Args:
            report: gets a sentence about each failure.

        Cancellation: the last one that was looked up stays.
        """
        key = object()
        self._reports[key] = report
        wait = FIRST_WAIT
        try:
            while True:
                await self._until_due()
                before = self.latest
                try:
                    await self._look_up(before, only_if_due=self._kind is Token)
                except LookupFailedError as error:
                    pause = min(wait, self._most_to_wait())
                    wait = min(wait * 2, LONGEST_WAIT)
                    self._report(f"{error}; {self._state()}; the next attempt is in {pause:.3g} s")
                    await trio.sleep(pause)
                    continue
                if self._kind is Token:
                    wait = FIRST_WAIT
                    await trio.sleep(SHORTEST_WAIT)
                    continue
                if self.latest != before:
                    wait = FIRST_WAIT
                # A data plane that is refused asks three times a second.
                await trio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT) if self.latest == before else FIRST_WAIT
        finally:
            del self._reports[key]

    async def _until_due(self) -> None:
        if self._kind is Credentials:
            await self._wanted.wait()
            self._wanted = trio.Event()
            return
        # The time of day passes by itself.
        while (left := self._refresh_at - self._now()) > 0:  # noqa: ASYNC110
            await trio.sleep(min(left, _LONGEST_SLEEP))
        await trio.lowlevel.checkpoint()

    def _most_to_wait(self) -> float:
        """So that there are some attempts before the token expires, however short it lives."""
        left = self.usable.expires_at - self._now() if isinstance(self.usable, Token) else math.inf
        return max(left / 4, SHORTEST_WAIT)

    def _state(self) -> str:
        if self.latest is None:
            return "there is none yet"
        if self.latest is self._refused:
            return "a broker refused what was looked up last"
        if isinstance(self.latest, Token):
            left = self.latest.expires_at - self._now()
            if left > 0:
                return f"the present token is valid for {left:.0f} s"
            return f"the last token expired {-left:.0f} s ago"
        return "the last ones are used"

    async def _insist(self, refused: Token | Credentials | None) -> Token | Credentials:
        """Look up; try once more after a failure, unless a token can be waited for."""
        waits = isinstance(self.latest, Token)
        if not waits:
            try:
                return await self._look_up(refused)
            except LookupFailedError as error:
                self._report(f"{error}; the next attempt is in {FIRST_WAIT:.3g} s")
            await trio.sleep(FIRST_WAIT)
        try:
            return await self._look_up(refused, again=not waits)
        except LookupFailedError as error:
            text = f"there is nothing to log in with: {error}; {self._state()}"
            if waits:
                raise ConnectionLostError(text) from error.__cause__
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise AuthenticationError(
                code, code_name(code), AuthenticationError.LOOKUP, text
            ) from error.__cause__

    async def _look_up(
        self,
        known: Token | Credentials | None,
        *,
        only_if_due: bool = False,
        again: bool = True,
    ) -> Token | Credentials:
        """Call the program's function, unless another task has done so while this one waited.

        If not `again`, a call that failed a short time ago counts.
        """
        async with self._looking_up:
            if only_if_due and self._refresh_at > self._now():
                assert self.latest is not None  # its lifetime is known
                return self.latest
            if self.latest is not known and self.usable is not None:
                return self.usable
            if not again and trio.current_time() < self._quiet_until:
                raise LookupFailedError(self._failure)
            try:
                found = await self._call()
            except LookupFailedError as failure:
                self._failure = str(failure)
                self._quiet = min(2 * self._quiet or FIRST_WAIT, LONGEST_QUIET)
                self._quiet_until = trio.current_time() + self._quiet
                raise
            self._keep(found)
        assert self.latest is not None  # it was kept
        return self.latest

    async def _call(self) -> Token | Credentials:
        function = self._function
        assert function is not None  # otherwise nothing is looked up
        found: Any = None
        with trio.move_on_after(LONGEST_LOOKUP) as scope:
            try:
                if inspect.iscoroutinefunction(function):
                    found = function()
                else:
                    found = await self._call_in_thread(function)
                if inspect.isawaitable(found):
                    found = await found
            except Exception as error:
                # Programs raise what they like; of other libraries' errors only the text is known.
                raise LookupFailedError(
                    f"{self._name} raised {in_one_line(error)[:_LONGEST_REASON]}"
                ) from error
        if scope.cancelled_caught:
            late = f"{self._name} did not return within {LONGEST_LOOKUP:.0f} s"
            if len(self._running) == MOST_CALLS:
                late += (
                    f"; {MOST_CALLS} calls of it still run, and it is called again when one of them"
                    " has returned: let its requests have a time-out"
                )
            raise LookupFailedError(late)
        if not isinstance(found, self._kind):
            other, found = type(found).__name__, None  # it may be a secret itself
            raise LookupFailedError(f"{self._name} returned {other}, not {self._kind.__name__}")
        if isinstance(found, Token) and found.expires_at <= self._now():
            ago = self._now() - found.expires_at
            late = f"{self._name} returned a token that expired {ago:.0f} s ago"
            if found.expires_at < _LONGEST_LIFETIME:
                late += f": expires_at={found.expires_at} is a time, in seconds since 1970; to a"
                late += " lifetime, such as expires_in of an OAuth 2.0 response, add time.time()"
            raise LookupFailedError(late)
        return found

    async def _call_in_thread(self, function: Callable[[], Any]) -> Any:
        """Call it in a thread where no earlier call hangs, if there is one."""
        free = (number for number in range(MOST_CALLS) if number not in self._running)
        number = next(free, MOST_CALLS - 1)
        if number == len(self._threads):
            self._threads.append(self._compute())

        def call() -> Any:
            self._running.add(number)
            try:
                return function()
            finally:
                self._running.discard(number)

        return await self._threads[number](call, _THREAD)

    def _keep(self, found: Token | Credentials) -> None:
        changed = found != self.latest
        self.latest, self._refused = found, None
        self._failure, self._quiet, self._quiet_until = "", 0.0, -math.inf
        if isinstance(found, Token):
            now = self._now()
            self._refresh_at = now + (found.expires_at - now) * REFRESH_AT
        if changed:
            for listener in list(self._listeners.values()):
                listener()

    def _report(self, reason: str) -> None:
        for report in list(self._reports.values()):
            report(reason)


def _time_of_day() -> float:
    return time.time()


_LOGINS: Final = trio.lowlevel.RunVar[WeakValueDictionary[Security, Logins]]("kgroup_logins")
"""INVARIANT: for equal settings there is one for as long as anything uses it, also if the settings
that it was made for are gone. No task would keep the token of a second one fresh."""


def logins_of(security: Security, compute: Callable[[], Compute]) -> Logins:
    """Those of this event loop for such settings; `compute` is used if they are the first."""
    known = loop_local(_LOGINS, WeakValueDictionary)
    logins = known.get(security)
    if logins is None:
        logins = known[security] = Logins(security, compute)
    return logins
