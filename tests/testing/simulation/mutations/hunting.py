"""The tests' side of ``program.py``: starts it, and sends it hunts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, final

import attrs

from tests.testing.simulation.mutations import program
from tests.testing.simulation.mutations.mutation import Mutation

SCENARIO: Final[Mapping[str, Any]] = {
    "members": 3,
    "duration": 120.0,
    "faults_per_hour": 600.0,
    "config": {"drain_timeout": 1.0, "request_timeout": 10.0},
}
"""Short, with many faults, and drains that end while commits are under way; see ``Scenario``."""


@final
@attrs.frozen(kw_only=True)
class Catch:
    """The result of a hunt.

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
    """A hunt failed."""


@final
class Hunter:
    """A process that hunts for one mutation after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hunt(self, mutation: Mutation, seeds: Sequence[int] | None = None) -> Catch:
        """Find the seed that finds a mutation.

        Raises:
            HuntError: its line is not there once, or the process was ended.
        """
        change = attrs.asdict(
            mutation, filter=lambda field, _: field.name in ("module", "old", "new", "within")
        )
        tried = mutation.seeds if seeds is None else seeds
        return self._request(
            change=change,
            breaks=mutation.breaks,
            seeds=tried,
            config=mutation.config,
            partition_handler=mutation.partition_handler,
        )

    def hunt_unchanged(self, seeds: Sequence[int], partition_handler: str | None = None) -> Catch:
        """Find a seed that breaks an invariant of the unchanged code.

        Raises:
            HuntError: the process was ended.
        """
        return self._request(
            change=None, breaks=None, seeds=seeds, partition_handler=partition_handler
        )

    def _request(self, *, config: Mapping[str, float] = MappingProxyType({}), **hunt: Any) -> Catch:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        scenario = {**SCENARIO, "config": {**SCENARIO["config"], **config}}
        process.stdin.write(json.dumps({"scenario": scenario, **hunt}, default=list) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline() or '{"error": "the program has ended"}')
        if "error" in answer:
            raise HuntError(answer["error"])
        return Catch(**answer)


@contextmanager
def hunting() -> Iterator[Hunter]:
    """Start a hunter; its process ends with the block."""
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
