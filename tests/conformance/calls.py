"""Requests of a scenario: sent, perhaps parked by the broker, answered and recorded.

Awaiting a `Call` sends it and writes one line with its answer. A request that Kafka holds back
is written in two steps: `call = await member.join().park()`, which writes "parked" once the
broker has been silent for `HOLD` seconds, and later `await call.answer()`.

Durations are float seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

import trio

from tests.conformance.transcript import Names, show_answer, show_error
from tests.conformance.wire import Fields, NoAnswerError, Pool

HOLD: Final = 0.25
"""Silence after which a request counts as parked."""
PATIENCE: Final = 30.0
"""Longest wait for something that must happen."""
_LATE: Final = 2.0
"""An answer that is not parked counts as late after this time."""

Text = Callable[[Names], str]
"""A part of a transcript, formatted once every member id has an owner."""


class ScenarioError(Exception):
    """A scenario could not be set up, so its transcript would mean nothing."""


@dataclass(kw_only=True)
class ScenarioRun:
    """The environment of one scenario."""

    pool: Pool
    nursery: trio.Nursery
    run_id: str
    slack: float
    names: Names = dataclasses.field(default_factory=Names)
    lines: list[Text] = dataclasses.field(default_factory=list)

    def write(self, line: Text) -> None:
        """Add a line to the transcript."""
        self.lines.append(line)

    async def clean_up(self) -> None:
        """Remove the scenario's members and groups, as far as the broker allows it."""
        for group_id in self.names.group_ids():
            leavers = [{"member_id": member} for member in self.names.member_ids()]
            with trio.move_on_after(PATIENCE):
                try:
                    leave = {"group_id": group_id, "members": leavers}
                    await self.pool.request("leave_group", 3, leave, "conformance")
                    delete = {"groups_names": [group_id]}
                    await self.pool.request("delete_groups", 2, delete, "conformance")
                except NoAnswerError:
                    pass

    def timing(self, elapsed: float, near: float) -> str:
        """Timers may fire late on a busy machine, never early: `near` to `near + slack`."""
        if 0.9 * near <= elapsed < near + self.slack:
            return f" (after ~{near:g} s)"
        return f" (after {elapsed:.1f} s instead of ~{near:g} s)"


class Call:
    """One request to the broker under test."""

    def __init__(
        self,
        scenario_run: ScenarioRun,
        api: str,
        version: int,
        fields: Fields,
        actor: str,
        said: Text,
        learn: Callable[[Fields], None] | None = None,
    ) -> None:
        self._scenario_run = scenario_run
        self._api = api
        self._version = version
        self._fields = fields
        self._actor = actor
        self._said = said
        self._learn = learn
        self._sent_at: float | None = None
        self._answered_at = 0.0
        self._answer: Fields | str = ""
        self._answered = trio.Event()
        self._scope = trio.CancelScope()

    def __await__(self) -> Generator[Any, None, Fields]:
        return self.answer().__await__()

    def send(self) -> Call:
        """Send without waiting for anything; a call is sent once."""
        if self._sent_at is None:
            self._sent_at = trio.current_time()
            self._scenario_run.nursery.start_soon(self._ask)
        return self

    async def answer(self, *, near: float | None = None, since: float | None = None) -> Fields:
        """Wait for the answer and write it.

        Args:
            near: the delay that the answer must come after, counted from `since`.
            since: a time of `Group.now`; the time at which this call was sent, if None.
        """
        direct = self._sent_at is None
        arrow = "->" if direct else "=>"
        self.send()
        with trio.move_on_after(PATIENCE):
            await self._answered.wait()
        timing = ""
        start = self._sent_at if since is None else since
        assert start is not None
        elapsed = self._answered_at - start
        if near is not None and self._answered.is_set():
            timing = self._scenario_run.timing(elapsed, near)
        elif direct and elapsed > _LATE:
            timing = " (late)"
        self._write(lambda names: f"{arrow} {self._shown(names)}{timing}")
        return self._fields_of_answer()

    async def park(self) -> Call:
        """Send, and write that the broker holds the request back, or what it answered instead."""
        self.send()
        with trio.move_on_after(HOLD):
            await self._answered.wait()
        if self._answered.is_set():
            self._write(lambda names: f"-> {self._shown(names)}")
        else:
            self._write(lambda names: "-> parked")
        return self

    async def abandoned(self) -> None:
        """Write that a parked call was given up by the broker, or the success that it had.

        Kafka leaves such a request without any answer; an error would do no harm either.
        """
        with trio.move_on_after(HOLD):
            await self._answered.wait()
        answer = self._fields_of_answer()
        if answer and show_error(answer) == "NONE":
            self._write(lambda names: f"=> {self._shown(names)}")
        else:
            self._write(lambda names: "=> given up")

    def hang_up(self) -> None:
        """Close the connection that the call is parked on."""
        self._scope.cancel()
        self._write(lambda names: "-- connection closed by the client")

    async def quiet(self) -> Fields:
        """Wait for the answer and write nothing: for steps on the way to what a scenario shows."""
        self.send()
        with trio.move_on_after(PATIENCE):
            await self._answered.wait()
        if isinstance(self._answer, str):
            raise ScenarioError(
                f"{self._actor} {self._said(self._scenario_run.names)}: {self._answer}"
            )
        return self._answer

    async def good(self) -> Fields:
        """As `quiet`, but anything else than success ends the scenario."""
        answer = await self.quiet()
        if show_error(answer) != "NONE":
            request = self._said(self._scenario_run.names)
            raise ScenarioError(f"{self._actor} {request}: {show_error(answer)}")
        return answer

    async def _ask(self) -> None:
        with self._scope:
            try:
                self._answer = await self._scenario_run.pool.request(
                    self._api, self._version, self._fields, client_id=self._actor
                )
            except NoAnswerError as error:
                self._answer = str(error)
            else:
                if self._learn is not None:
                    self._learn(self._answer)
            self._answered_at = trio.current_time()
            self._answered.set()

    def _fields_of_answer(self) -> Fields:
        return {} if isinstance(self._answer, str) else self._answer

    def _shown(self, names: Names) -> str:
        if isinstance(self._answer, str):
            return self._answer or "no answer"
        return show_answer(self._api, self._answer, names)

    def _write(self, outcome: Text) -> None:
        self._scenario_run.write(
            lambda names: f"{self._actor} {self._said(names)} {outcome(names)}"
        )
