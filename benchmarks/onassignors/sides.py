"""Runs both sides as processes, and compiles the Java side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import attrs

from benchmarks.java import compiled, program

HEAP: Final = "4g"
_SOURCE: Final = Path(__file__).resolve().parent / "JavaSide.java"

Answer = dict[str, Any]
"""The figures of one run; see side.py."""


@final
@attrs.frozen
class Side:
    """A side as a running process."""

    name: str
    process: subprocess.Popen[str]

    def ask(self, assignor: str, path: Path, runs: int = 1) -> list[Answer]:
        """Request runs of an assignor on a case.

        Raises:
            RuntimeError: the process has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{assignor} {runs} {path}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.name} ended with {self.process.wait()}; see its errors above"
            )
        answers: list[Answer] = json.loads(line)
        return answers

    def warm_up(self, assignor: str, path: Path, seconds: float) -> int:
        """Request runs for this many seconds; return how many there were."""
        runs, worked = 0, 0.0
        while worked < seconds:
            (answer,) = self.ask(assignor, path)
            worked += sum(part["wall"] for part in answer.values() if isinstance(part, dict))
            runs += 1
        return runs


@contextmanager
def started(name: str, command: Sequence[str]) -> Iterator[Side]:
    """Run a side; it ends when its standard input is closed."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Side(name, process)
        finally:
            process.kill()


def python_command() -> list[str]:
    """The command of kgroup's side."""
    root = str(_SOURCE.parents[2])
    program = "from benchmarks.onassignors.side import main; main()"
    return [sys.executable, "-c", f"import sys; sys.path.append({root!r}); {program}"]


def java_side_command(classes: Path) -> list[str]:
    """Compile the Java side into a folder; return its command, with a consumer's JIT.

    Raises:
        KafkaUnavailableError: there is no Java, or no jars.
        subprocess.CalledProcessError: it does not compile.
    """
    return program(compiled([_SOURCE], classes), "JavaSide", heap=HEAP)
