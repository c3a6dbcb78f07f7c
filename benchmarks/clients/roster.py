"""The clients by their names: how their workers are started, and what has to be installed.

INVARIANT: a client that is not there is never left out silently: ``present`` says why.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, final

import attrs

from benchmarks.clients import builds
from benchmarks.clients.builds import MissingError
from kgroup.testing.java import KAFKA_VERSION


@final
@attrs.frozen
class Client:
    """A client, or several kinds of them that share a group.

    Attributes:
        name: its name in tables and on the command line.
        command: makes the command of a worker without its job, and builds what it needs.
        version: what is measured, with its version.
        clients: for a mixed group, the names of the clients, in the order in which they join.
        grouped: whether it joins a group; what does not has no members, and shares nothing.
        secure: whether it takes the properties of a job, and so can log in.
    """

    name: str
    command: Callable[[], Sequence[str]]
    version: Callable[[], str]
    clients: tuple[str, ...] = ()
    grouped: bool = True
    secure: bool = False


def in_python(name: str, *packages: str, grouped: bool = True) -> Client:
    """A client in Python, whose adapter is in ``worker.ADAPTERS``."""
    secure = bool({"kgroup", "confluent-kafka"} & set(packages))

    def command() -> list[str]:
        for package in packages:
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                raise MissingError(f"the Python package {package} is not installed") from None
        return [sys.executable, "-m", "benchmarks.clients.worker", name]

    def version() -> str:
        found = [f"{package} {importlib.metadata.version(package)}" for package in packages]
        if secure:
            import confluent_kafka

            found.append(f"librdkafka {confluent_kafka.libversion()[0]}")
        return ", ".join(found)

    return Client(name, command, version, grouped=grouped, secure=secure)


def in_go(name: str, folder: str, module: str) -> Client:
    """A client in Go, whose program is in ``golang``."""

    def command() -> list[str]:
        return [str(builds.go_program(folder))]

    return Client(name, command, lambda: builds.go_version(module))


def in_java(name: str, protocol: str) -> Client:
    """Kafka's own consumer with one of its protocols."""

    def command() -> list[str]:
        return [*builds.java_program(), protocol]

    return Client(name, command, lambda: f"kafka-clients {KAFKA_VERSION}")


def mixed(name: str, *clients: str) -> Client:
    """A group whose members are of several clients."""

    def command() -> Sequence[str]:
        for one in clients:
            CLIENTS[one].command()
        return ()

    return Client(name, command, lambda: ", ".join(clients), clients)


CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        in_python("kgroup", "kgroup"),
        in_python("kgroup-batches", "kgroup"),
        in_python("kgroup-threads", "kgroup"),
        in_python("kgroup-source", "kgroup", grouped=False),
        in_python("confluent-raw", "confluent-kafka", grouped=False),
        in_python("confluent-checked", "confluent-kafka", grouped=False),
        in_python("confluent-eager", "confluent-kafka"),
        in_python("confluent-cooperative", "confluent-kafka"),
        in_python("confluent-kip848", "confluent-kafka"),
        in_python("aiokafka", "aiokafka"),
        in_python("kafka-python", "kafka-python"),
        in_go("kafka-go", "kafkago", "github.com/segmentio/kafka-go"),
        in_go("franz-go", "franzgo", "github.com/twmb/franz-go"),
        in_java("java", "classic"),
        in_java("java-kip848", "consumer"),
        # Java and kafka-go are not mixed: a leader in Java ends at kafka-go's subscriptions.
        mixed("mixed, Java", "kgroup", "confluent-eager", "java"),
        mixed("mixed, Java, no kgroup", "confluent-eager", "java"),
        mixed("mixed, Go", "kgroup", "confluent-eager", "kafka-go"),
        mixed("mixed, Go, no kgroup", "confluent-eager", "kafka-go"),
    )
}


@final
@attrs.frozen
class Present:
    """The clients that can be run here, with their versions, and why the others cannot."""

    clients: tuple[Client, ...]
    versions: Mapping[str, str]
    left_out: Mapping[str, str]

    def workers(self, client: Client) -> tuple[Client, ...]:
        """The clients that a client's group consists of."""
        return tuple(CLIENTS[name] for name in client.clients) or (client,)


def present(names: Iterable[str], known: Mapping[str, Client] = CLIENTS) -> Present:
    """Prepare the clients, and name those that are left out, loudly."""
    clients, versions, left_out = list[Client](), dict[str, str](), dict[str, str]()
    for name in names:
        client = known[name]
        try:
            client.command()
            versions[name] = client.version()
            clients.append(client)
        except MissingError as error:
            left_out[name] = str(error)
            print(f"\n*** LEFT OUT: {name}: {error} ***\n", file=sys.stderr, flush=True)
    return Present(tuple(clients), versions, left_out)
