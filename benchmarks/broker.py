"""Compares the embedded broker's speed with a real Kafka's, and measures how quickly it starts.

    python benchmarks/broker.py [--megabytes N] [--rounds N] [--partitions N] [--starts N]
                                [--no-kafka]

confluent-kafka produces records of 1 KB over loopback and then consumes them. Producer, consumer
and broker are separate processes. Rounds alternate between the embedded broker and the real Kafka
(one node, started from pip packages; left out with ``--no-kafka``). A rate is measured by the wall
clock between the first and the last record. CPU is that of the broker's process alone; the maximum
rate with a core of its own follows from it.

``serve()`` is timed from the call to the body of the context, in a process that has imported all
modules. ``kgroup broker`` is timed from the command to its ready line, imports included. Medians
are printed with the lowest and the highest; on a busy machine, look at the spread first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, final
from uuid import uuid4

import confluent_kafka
import trio

from kgroup.broker import serve
from kgroup.testing.admin import create_topic
from kgroup.testing.kafka import RealKafka

RECORD: Final = 1000
READY: Final = "ready"
EMBEDDED: Final = "embedded"
REAL: Final = "Apache Kafka"
_THIS: Final = str(Path(__file__).resolve())
_COMMAND: Final = (sys.executable, "-c", "from kgroup.cli import main; main()", "broker")


def produce(servers: str, topic: str, records: int, partitions: int) -> dict[str, float]:
    """Produce records, spread evenly over the partitions."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 1_000_000}
    )
    producer.list_topics(topic)  # connect before the clock starts
    value = os.urandom(RECORD)
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    if left:
        raise SystemExit(f"{left} records were not written")
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def consume(servers: str, topic: str, records: int, partitions: int) -> dict[str, float]:
    """Consume records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"benchmark-{uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
    )
    got, wall, cpu = 0, 0.0, 0.0
    while got < records:
        batch = consumer.consume(10_000, 0.05)
        for message in batch:
            if message.error():
                raise SystemExit(str(message.error()))
        if batch and not got:
            wall, cpu = time.perf_counter(), time.process_time()
        got += len(batch)
    done = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    consumer.close()
    return done


CLIENTS: Final[dict[str, Callable[[str, str, int, int], dict[str, float]]]] = {
    "produce": produce,
    "consume": consume,
}


def serve_until_killed() -> None:
    """Run the embedded broker; print its address, and its CPU seconds on request."""

    async def run() -> None:
        async with serve() as broker:
            print(READY, broker.bootstrap_servers, flush=True)
            await trio.sleep_forever()

    def answer() -> None:
        for _ in sys.stdin:
            print(time.process_time(), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    trio.run(run)


def time_starts(starts: int) -> None:
    """Measure several times how long ``serve()`` takes until its body runs."""
    print(json.dumps([trio.run(_time_a_start) for _ in range(starts)]))


async def _time_a_start() -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    async with serve():
        return time.perf_counter() - wall, time.process_time() - cpu


@final
class Running:
    """A broker to measure: its address, and its CPU seconds if they are known."""

    def __init__(self, servers: str, process: subprocess.Popen[str] | None = None) -> None:
        self.servers = servers
        self._process = process

    def cpu(self) -> float | None:
        """CPU seconds of the broker's process so far."""
        if self._process is None:
            return None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def embedded() -> Iterator[Running]:
    """A new embedded broker, without records of earlier rounds."""
    with subprocess.Popen(
        [sys.executable, _THIS, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Running(process.stdout.readline().split()[1], process)
        finally:
            process.terminate()


def measure(running: Running, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure one round on one broker."""
    topic = f"broker-{uuid4().hex[:8]}"
    create_topic(running.servers, topic, arguments.partitions)
    results: dict[str, dict[str, float]] = {}
    records = arguments.megabytes * 1_000_000 // RECORD
    for what in CLIENTS:
        command = [sys.executable, _THIS, "--client", what, "--servers", running.servers]
        command += ["--topic", topic, "--partitions", str(arguments.partitions)]
        command += ["--records", str(records)]
        before = running.cpu()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        after = running.cpu()
        results[what] = json.loads(done.stdout.splitlines()[-1])
        if before is not None and after is not None:
            results[what]["broker"] = after - before
    return results


def spread(values: list[float], form: str) -> str:
    """Median, lowest and highest."""
    median = format(statistics.median(values), form)
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def report_records(rounds: dict[str, list[dict[str, dict[str, float]]]], megabytes: int) -> None:
    """Print rates, the broker's CPU, and the ratio of the two brokers."""
    for what in CLIENTS:
        print(f"\n{what}")
        for name, results in rounds.items():
            rates = [megabytes / result[what]["wall"] for result in results]
            client = [result[what]["cpu"] / megabytes * 1000 for result in results]
            print(
                f"  {name:12} {spread(rates, '.0f')} MB/s,"
                f" client's CPU {spread(client, '.1f')} ms/MB"
            )
            if "broker" in results[0][what]:
                cpu = [result[what]["broker"] / megabytes * 1000 for result in results]
                most = spread([1000 / one for one in cpu], ".0f")
                print(
                    f"  {'':12} broker's CPU {spread(cpu, '.1f')} ms/MB,"
                    f" at most {most} MB/s on a core"
                )
        if len(rounds) > 1:
            ratios = [
                theirs[what]["wall"] / ours[what]["wall"]
                for ours, theirs in zip(rounds[EMBEDDED], rounds[REAL], strict=True)
            ]
            print(f"  embedded / Kafka, round by round: {spread(ratios, '.2f')}")


def report_starts(starts: int) -> None:
    """Print how soon ``serve()`` and ``kgroup broker`` are ready."""
    done = subprocess.run(
        [sys.executable, _THIS, "--time-starts", str(starts)],
        check=True,
        capture_output=True,
        text=True,
    )
    times: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    wall, cpu = ([one[kind] * 1000 for one in times] for kind in (0, 1))
    print(f"\nserve() to ready, {starts} times: {spread(wall, '.1f')} ms")
    print(f"  CPU {spread(cpu, '.1f')} ms; the first {wall[0]:.1f} ms, CPU {cpu[0]:.1f} ms")
    wall, cpu = [], []
    for _ in range(min(starts, 7)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        with subprocess.Popen(
            [*_COMMAND, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            wall.append((time.perf_counter() - began) * 1000)
            process.terminate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu.append(seconds * 1000)
    print(f"`kgroup broker` to its ready line, imports included: {spread(wall, '.0f')} ms")
    print(f"  CPU of the process, start to end: {spread(cpu, '.0f')} ms")


def report(arguments: argparse.Namespace) -> None:
    """Measure everything and print it."""
    print(
        f"Python {platform.python_version()}, trio {trio.__version__},"
        f" confluent-kafka {confluent_kafka.__version__},"
        f" librdkafka {confluent_kafka.libversion()[0]}, {platform.platform()},"
        f" {os.cpu_count()} CPUs\n"
        f"{arguments.megabytes} MB of {RECORD} B records in {arguments.partitions} partitions,"
        f" {arguments.rounds} rounds"
    )
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {EMBEDDED: []}
    with ExitStack() as stack:
        kafka: Running | None = None
        if arguments.kafka:
            kafka = Running(stack.enter_context(RealKafka(java_options=())).bootstrap_servers)
            rounds[REAL] = []
        for _ in range(arguments.rounds):
            with embedded() as running:
                rounds[EMBEDDED].append(measure(running, arguments))
            if kafka is not None:
                rounds[REAL].append(measure(kafka, arguments))
    report_records(rounds, arguments.megabytes)
    report_starts(arguments.starts)


def main() -> None:
    """Parse the arguments, and run one part or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--starts", type=int, default=21)
    parser.add_argument("--no-kafka", action="store_false", dest="kafka")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--records", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--time-starts", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    given: Any = arguments
    if given.serve:
        serve_until_killed()
    elif given.time_starts:
        time_starts(given.time_starts)
    elif given.client:
        client = CLIENTS[given.client]
        print(json.dumps(client(given.servers, given.topic, given.records, given.partitions)))
    else:
        report(arguments)


if __name__ == "__main__":
    main()
