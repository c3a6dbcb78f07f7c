"""The command ``python -m benchmarks security``: what encryption and logins cost.

The clients read a backlog, and play the scene "rolling restart" of ``handover``, once on Kafka's
plain listener and once on one with TLS and SCRAM-SHA-512, in turns and on the same broker.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.arguments import count
from benchmarks.clients.job import Job
from benchmarks.clients.roster import CLIENTS, Client, present
from benchmarks.handover.part import plays_of
from benchmarks.processes import FailedError
from benchmarks.records.part import BATCH, read_all
from benchmarks.report.results import Results
from benchmarks.single import add_clients, in_turns, topic_with, warm_up
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener

READERS: Final = ("confluent-raw", "kgroup-batches", "kgroup")
GROUPS: Final = ("kgroup", "confluent-eager", "confluent-cooperative")
PLAIN: Final = "plain text"
SECURE: Final = "SASL_SSL"
LISTENERS: Final = (PLAIN, SECURE)
USER: Final = "reader"
SCENE: Final = "rolling restart"
HEARTBEAT: Final = 1.0
FAULTS: Final = ("lost", "twice", "back", "unread")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, READERS, rounds=5, able=lambda client: client.secure)
    able = [name for name, client in CLIENTS.items() if client.secure and client.grouped]
    help_text = "for the scene"
    parser.add_argument("--groups", nargs="*", choices=able, default=list(GROUPS), help=help_text)
    parser.add_argument("--records", type=count, default=400_000)
    parser.add_argument("--size", type=count, default=1000, help="in bytes")
    parser.add_argument("--partitions", type=count, default=12)
    parser.add_argument("--rate", type=count, default=3000, help="records per second, in the scene")


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Read, then restart."""
    names = ("rounds", "records", "size", "partitions", "rate")
    settings = {name: getattr(arguments, name) for name in names}
    everyone = present(dict.fromkeys([*arguments.clients, *arguments.groups]))
    results = Results.begin("security", settings, everyone, folder)
    rights = {"super.users": f"User:ANONYMOUS;User:{USER}"}
    listener = SecureListener({USER: "benchmark"}, properties=rights)
    with (
        RealKafka(java_options=(), secure=listener) as kafka,
        tempfile.TemporaryDirectory(prefix="kgroup-benchmark-") as place,
    ):
        warm_up(kafka.bootstrap_servers)
        file = Path(place) / "client.properties"
        file.write_text(properties_of(kafka, listener, Path(place)))
        servers, partitions = kafka.bootstrap_servers, arguments.partitions
        job = Job(servers=servers, topic="", group="", partitions=partitions)
        topic = topic_with(servers, partitions, arguments.records, arguments.size)
        backlog = attrs.evolve(
            job, topic=topic, batch=BATCH, commit=False, sink="meter", records=arguments.records
        )
        cases = [f"records, {one}" for one in LISTENERS]
        measure = partial(reading, backlog, file)
        in_turns(results, present(arguments.clients), arguments.rounds, cases, measure)
        scene = argparse.Namespace(rate=arguments.rate, scenes=[SCENE])
        cases = [f"{SCENE}, {one}" for one in LISTENERS]
        in_turns(
            results,
            present(arguments.groups),
            arguments.rounds,
            cases,
            partial(restarting, attrs.evolve(job, session=6.0, heartbeat=HEARTBEAT), file, scene),
        )
    return results


def properties_of(kafka: RealKafka, listener: SecureListener, folder: Path) -> str:
    """The properties with which clients connect to the secure listener."""
    ca = folder / "ca.pem"
    ca.write_text(listener.ca)
    security = attrs.evolve(listener.login(USER), ca=str(ca))
    settings = {"bootstrap.servers": kafka.secure_servers, **librdkafka_settings(security)}
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def reading(job: Job, file: Path, client: Client, case: str) -> Mapping[str, Any]:
    """Let one worker read the backlog."""
    return read_all(on_listener(job, file, case), client)


def restarting(
    job: Job, file: Path, scene: argparse.Namespace, client: Client, case: str
) -> Mapping[str, Any]:
    """Play the scene; the longest gap of each partition at each restart."""
    there = present([client.name])
    (play,) = plays_of(there, client, on_listener(job, file, case), scene)
    if "failed" in play:
        raise FailedError(play["failed"])
    if faults := {name: play[name] for name in FAULTS if play[name]}:
        raise FailedError(f"records were lost, repeated, out of order or left: {faults}")
    return {"longest": play["longest"]}


def on_listener(job: Job, file: Path, case: str) -> Job:
    """The job with the listener that a case names."""
    return attrs.evolve(job, properties=str(file)) if case.endswith(SECURE) else job
