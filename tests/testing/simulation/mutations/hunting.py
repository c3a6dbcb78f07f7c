"""The tests' side of ``program.py``: starts it, and asks it to hunt."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import attrs

from tests.testing.simulation.mutations import program
from tests.testing.simulation.mutations.mutation import Mutation

SCENARIO: Final = {
    "members": 3,
    "duration": 120.0,
    "faults_per_hour": 600.0,
    "config": {"drain_timeout": 1.0, "request_timeout": 10.0},
}
"""Short, with much trouble, and drains that end while commits are under way; see ``Scenario``."""


@final
@attrs.frozen(kw_only=True)
class Catch:
    """What came of a hunt.

    Attributes:
        seed: the one that found it, or None.
        violation: what was found.
        tried: how many seeds were simulated.
        cpu: seconds of processor time, imports with it.
        failed: what the simulator itself raised, by seed.
    """

    seed: int | None
    violation: str
    tried: int
    cpu: float
    failed: list[str]


class HuntError(Exception):
    """A hunt could not be made."""


@final
class Hunter:
    """A process that hunts, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hunt(self, mutation: Mutation, seeds: Sequence[int] | None = None) -> Catch:
        """Look for the seed that finds a mutation.

        Raises:
            HuntError: its line is not there once, or the process was ended.
        """
        change = attrs.asdict(
            mutation, filter=lambda field, _: field.name in ("module", "old", "new", "within")
        )
        tried = mutation.seeds if seeds is None else seeds
        return self._ask(change=change, breaks=mutation.breaks, seeds=tried)

    def look(self, seeds: Sequence[int]) -> Catch:
        """Look for anything that kgroup as it is breaks.

        Raises:
            HuntError: the process was ended.
        """
        return self._ask(change=None, breaks=None, seeds=seeds)

    def _ask(self, **asked: Any) -> Catch:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"scenario": SCENARIO, **asked}, default=list) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline() or '{"error": "the program has ended"}')
        if "error" in answer:
            raise HuntError(answer["error"])
        return Catch(**answer)


@contextmanager
def hunting() -> Iterator[Hunter]:
    """A hunter, whose process ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-P", program.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Hunter(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
