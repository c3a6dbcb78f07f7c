"""Times kgroup's assignors, in a process with the same protocol as JavaSide.java.

Each line of standard input requests runs of one assignor on one case ("assignor runs path"). The
response is one line of JSON with an object for every run: the wall clock's and the thread's CPU
seconds of each part, the number of assigned partitions (in all, and the least and most of one
member), and the size in bytes. The parts are decoding the subscriptions, assigning, checking the
result (only in kgroup) and encoding it. Garbage is collected before each run, not during it.
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
"""Bytes in the unit of getrusage's memory."""


@final
class Lap:
    """Times the parts, one after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {}
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def end(self, part: str) -> None:
        """End a part; the next one begins."""
        wall, cpu = time.perf_counter(), time.thread_time()
        self.seconds[part] = {"wall": wall - self._wall, "cpu": cpu - self._cpu}
        self._wall, self._cpu = time.perf_counter(), time.thread_time()


def run(joined: Joined, name: str) -> dict[str, Any]:
    """Run all parts once."""
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
    return {**lap.seconds, "given": [sum(counts), min(counts), max(counts)], "bytes": size}


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        name, runs, path = line.rstrip("\n").split(" ", 2)
        joined = Joined.read(Path(path))
        answers = [run(joined, name) for _ in range(int(runs))]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
        for answer in answers:
            answer["peak"] = peak
        print(json.dumps(answers), flush=True)
