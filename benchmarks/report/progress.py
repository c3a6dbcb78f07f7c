"""Says on standard error how far a run has come."""

from __future__ import annotations

import sys
import time
from typing import final


@final
class Progress:
    """Counts steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._step = 0
        self._began = time.monotonic()

    def step(self, what: str) -> None:
        """A step begins."""
        self._step += 1
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        self.say(f"[{minutes:d}:{seconds:02d}] {self._step} of {self._steps}: {what}", indent="")

    def say(self, what: str, *, indent: str = "    ") -> None:
        """Print something about the current step."""
        print(f"{indent}{what}", file=sys.stderr, flush=True)
