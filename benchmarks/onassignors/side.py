"""kgroup's assignors, timed: a process that does what JavaSide.java does, by the same protocol.

Each line of standard input asks for so many runs of one assignor on one case ("assignor runs
path"); the answer is one line of JSON, an object for every run: the wall clock's seconds and the
thread's CPU seconds of each part, what was given (in all, least and most of one member), and how
many bytes it comes to. Parts: decoding the subscriptions, assigning, looking at the answer
(kgroup alone does), encoding it. Garbage is collected before each run, not meanwhile.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final, final

from benchmarks.onassignors.cases import Joined
from kgroup.assignors import BUILTIN
from kgroup.assignors.validation import check_assignments
from kgroup.wire.consumer_protocol import encode_assignment

KIB: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes of what getrusage counts memory in."""


@final
class Lap:
    """Times one part after the other."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, float]] = {}
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def end(self, part: str) -> None:
        """A part is done, the next one begins."""
        wall, cpu = time.perf_counter(), time.thread_time()
        self.told[part] = {"wall": wall - self._wall, "cpu": cpu - self._cpu}
        self._wall, self._cpu = time.perf_counter(), time.thread_time()


def run(joined: Joined, name: str) -> dict[str, Any]:
    """Do all parts once."""
    assignor = BUILTIN[name]
    gc.collect()
    lap = Lap()
    members = joined.decode()
    lap.end("decode")
    given = assignor.assign(joined.topics, members)
    lap.end("assign")
    checked = check_assignments(name, joined.topics, members, given)
    lap.end("check")
    size = sum(len(encode_assignment(share)) for share in checked.assignments.values())
    lap.end("encode")
    counts = list(map(len, checked.assignments.values()))
    return {**lap.told, "given": [sum(counts), min(counts), max(counts)], "bytes": size}


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        name, runs, path = line.rstrip("\n").split(" ", 2)
        joined = Joined.read(Path(path))
        answers = [run(joined, name) for _ in range(int(runs))]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
        for answer in answers:
            answer["peak"] = peak
        print(json.dumps(answers), flush=True)
