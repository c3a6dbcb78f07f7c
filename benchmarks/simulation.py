"""Measures simulations in CPU seconds of one core: a stable group, a rebalance, a large group.

    python benchmarks/simulation.py [--repeat 3]

Virtual time itself costs nothing. The work is that of every member's requests, through kgroup's own
client, the simulated network, and the embedded coordinator, all in one process.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

import trio
from trio.testing import memory_stream_pair

from kgroup.broker.response_versions import fit_response
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation import history
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.engine import Engine
from kgroup.testing.simulation.faults import Stop
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.plan import MemberPlan, Plan
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.wire import codec

HOUR = 3600.0


class TimedRecorder:
    """A recorder that also notes the CPU time whenever a group changes."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.subscribe = self.recorder.subscribe
        self.changes: list[tuple[history.GroupChanged, float]] = []

    def record(self, kind: Callable[..., history.HistoryEntry], **fields: Any) -> None:
        """As `Recorder.record`."""
        self.recorder.record(kind, **fields)
        last = self.recorder.history[-1]
        if isinstance(last, history.GroupChanged):
            self.changes.append((last, time.process_time()))


def plan(members: int, duration: float, **others: Any) -> Plan:
    """A plan without faults and records, with kgroup's default settings."""
    given = {
        "seed": 1,
        "duration": duration,
        "brokers": 3,
        "topics": {"orders": 2 * members},
        "members": tuple(MemberPlan(name=f"m{n}", start_at=0.0) for n in range(members)),
        "config": {},
        "broker_settings": {"default.replication.factor": 3},
        "latency": Latency(),
        "records_every": 10 * duration,
        "records_at_once": 1,
        "work": (0.0, 0.0),
        "faults": (),
    }
    return Plan(**{**given, **others})


def run(to_run: Plan) -> tuple[TimedRecorder, float]:
    """Run a plan; returns the recorder and the CPU seconds that it took."""
    recorder = TimedRecorder()
    began = time.process_time()
    run_virtual(to_run.seed, Engine(to_run, default_worker, recorder).run)  # type: ignore[arg-type]
    return recorder, time.process_time() - began


def stable_hour() -> float:
    """A virtual hour of a stable group with ten members."""
    return run(plan(10, HOUR))[1]


def rebalance_of_100() -> float:
    """From the time when one of 100 members leaves until the group is stable."""
    stop = Stop(at=60.0, process="m50", seconds=60.0)
    recorder, _ = run(plan(100, 90.0, faults=(stop,)))
    (began, *_) = (cpu for change, cpu in recorder.changes if change.at >= stop.at)
    ended = next(
        cpu for change, cpu in recorder.changes if change.at > stop.at and change.state == "Stable"
    )
    return ended - began


def joining_1000() -> float:
    """From the start until 1,000 members are stable, each with its partitions."""
    began = time.process_time()
    recorder, _ = run(plan(1000, 20.0))
    stable = [
        cpu
        for change, cpu in recorder.changes
        if change.state == "Stable" and len(change.members) == 1000
    ]
    return stable[0] - began


def bare_hour() -> float:
    """As many heartbeats as in `stable_hour`, through the codec and trio's memory streams only."""
    heartbeats = 1000
    fields = {
        "group_id": "group",
        "generation_id": 1,
        "member_id": "m1-00000000-0000-0000-0000-000000000000",
        "group_instance_id": None,
    }
    answer = fit_response("heartbeat", 4, {"error_code": ErrorCode.NONE})

    async def message(stream: trio.abc.Stream) -> bytes:
        (length,) = struct.unpack(">i", await stream.receive_some(4))
        return bytes(await stream.receive_some(length))

    async def serve(stream: trio.abc.Stream) -> None:
        while True:
            codec.decode_request(await message(stream))
            body = codec.encode_response("heartbeat", 4, answer, 1)
            await stream.send_all(struct.pack(">i", len(body)) + body)

    async def send_heartbeats() -> None:
        ours, theirs = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, theirs)
            for _ in range(heartbeats):
                body = codec.encode_request(
                    "heartbeat", 4, fields, correlation_id=1, client_id="m1"
                )
                await ours.send_all(struct.pack(">i", len(body)) + body)
                codec.decode_response("heartbeat", 4, await message(ours))
            nursery.cancel_scope.cancel()

    began = time.process_time()
    trio.run(send_heartbeats)
    return (time.process_time() - began) / heartbeats * 10 * HOUR


MEASURED = {
    "one virtual hour, 10 members": stable_hour,
    "its codec and trio's streams alone": bare_hour,
    "a rebalance of 100 members": rebalance_of_100,
    "1,000 members from nothing to stable": joining_1000,
}


def main() -> None:
    """Measure each several times, and print minimum, median and maximum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("kgroup", "trio", "kio")
    )
    print(f"Python {platform.python_version()}, {versions}; {os.cpu_count()} CPUs; {repeat} runs")
    print("CPU seconds of one core: minimum, median, maximum")
    for name, measure in MEASURED.items():
        taken = sorted(measure() for _ in range(repeat))
        figures = "  ".join(
            f"{value:7.2f}" for value in (taken[0], statistics.median(taken), taken[-1])
        )
        print(f"{name:40}{figures}")


if __name__ == "__main__":
    main()
