"""A real Kafka: the shared broker, and one of a test's own that it stops, kills and restarts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from kgroup.errors import ConfigError, UsageError
from kgroup.testing import kafka as module
from kgroup.testing.admin import create_topic, end_offsets, produce
from kgroup.testing.java import QUICK, KafkaUnavailableError
from kgroup.testing.kafka import KafkaAddress, RealKafka, tail
from kgroup.testing.probe import PAUSE, free_ports, wait_until_open
from kgroup.testing.reaper import FolderLock, processes_of
from kgroup.testing.shared import shared_kafka
from kgroup.types import TopicPartition
from tests.stopped import wait_until_one_is_stopped

Own = Callable[..., RealKafka]
PATIENCE: Final = 120.0


def test_records_are_produced_and_read(real_kafka: KafkaAddress) -> None:
    """Records that are produced to the shared broker can be read."""
    create_topic(real_kafka.bootstrap_servers, "come-back")
    produce(real_kafka.bootstrap_servers, "come-back", ["value"])
    consumer = Consumer(
        {"bootstrap.servers": real_kafka.bootstrap_servers, "group.id": "come-back"}
    )
    try:
        consumer.assign([Position("come-back", 0, 0)])
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


def test_tools_run(real_kafka: KafkaAddress) -> None:
    """Kafka's own tools work, and an unknown one is refused by name."""
    create_topic(real_kafka.bootstrap_servers, "tools", 3)
    described = real_kafka.run_tool("kafka-topics", "--describe", "--topic", "tools")
    assert "PartitionCount: 3" in described.stdout
    with pytest.raises(UsageError, match="'kafka-nothing'.*kafka-consumer-groups"):
        real_kafka.run_tool("kafka-nothing")
    assert real_kafka.log_tail(1)


def test_stop_kill_and_restart(own_kafka: Own) -> None:
    """They keep address, settings and data; in a state that they do not fit, they raise."""
    rack = "Zürich 日本 😀 \\n"
    settings = {"group.max.size": 4, "auto.create.topics.enable": True, "broker.rack": rack}
    kafka = own_kafka(settings=settings)
    server, folder, pid = kafka.bootstrap_servers, kafka.folder, kafka.pid
    assert repr(kafka) == f"<RealKafka at {server}, pid {pid}>"
    written = (folder / "server.properties").read_text()
    assert "group.max.size=4\n" in written
    assert "auto.create.topics.enable=true\n" in written
    admin = AdminClient({"bootstrap.servers": server})
    assert [node.rack for node in admin.describe_cluster().result(30).nodes] == [rack]
    with pytest.raises(UsageError, match="runs already"):
        kafka.start()

    create_topic(server, "stays")
    produce(server, "stays", ["a", "b"])
    kafka.kill()
    assert repr(kafka) == "<RealKafka, not running>"
    with pytest.raises(UsageError, match="does not run"):
        kafka.kill()
    kafka.start()
    assert kafka.bootstrap_servers == server
    assert kafka.pid != pid

    kafka.restart()
    partition = TopicPartition("stays", 0)
    assert end_offsets(server, [partition]) == {partition: 2}

    kafka.close()
    kafka.close()
    assert not folder.exists()
    assert kafka.log_path.exists()
    with pytest.raises(UsageError, match="no address"):
        kafka.address()
    with pytest.raises(UsageError, match="never started, or is closed"):
        _ = kafka.folder


def test_nothing_before_start() -> None:
    """Before its start a broker has no address, process or log."""
    kafka = RealKafka()
    assert repr(kafka) == "<RealKafka, not running>"
    with pytest.raises(UsageError):
        _ = kafka.log_path
    with pytest.raises(UsageError):
        _ = kafka.pid
    assert kafka.settings["group.initial.rebalance.delay.ms"] == "0"
    kafka.close()


def test_reserved_settings_are_refused() -> None:
    """A setting that RealKafka sets itself is refused before anything is started."""
    with pytest.raises(ConfigError, match="node.id=7"):
        RealKafka({"node.id": 7})


@pytest.mark.real_kafka
def test_shared_and_ended_with_its_last_user(tmp_path: Path) -> None:
    """A shared broker runs until its last user ends, even if that user is killed.

    It survives a SIGKILL of the process that started it, and leaves no process and no file.
    """
    program = (
        "import sys, time; from pathlib import Path; from kgroup.testing.shared import *\n"
        "with shared_kafka(Path(sys.argv[1])) as kafka:\n"
        "    print(kafka.bootstrap_servers, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def user() -> tuple[subprocess.Popen[str], str]:
        started = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert started.stdout is not None
        return started, started.stdout.readline().strip()

    starter, server = user()
    with shared_kafka(tmp_path) as kafka:
        assert kafka.bootstrap_servers == server
        folder = Path(json.loads((tmp_path / "real-kafka.json").read_text())["folder"])
        starter.kill()
        starter.communicate()
        create_topic(server, "shared")
        brokers = processes_of(folder)
        assert len(brokers) == 1
        last, address = user()
        assert address == server
    assert brokers[0].is_running()
    last.kill()
    last.communicate()
    psutil.wait_procs(brokers, timeout=PATIENCE)
    assert not brokers[0].is_running()
    hold = FolderLock.join(folder)
    assert hold is None


FAKE_JAVA = """
import socket, sys, time
if "kafka.Kafka" in sys.argv:
    settings = dict(line.rstrip().split("=", 1) for line in open(sys.argv[-1]))
    if "fake" in settings:
        sys.exit("fake: " + settings["fake"])
    host, _, port = settings["listeners"].split(",")[0].removeprefix("PLAINTEXT://").partition(":")
    try:
        server = socket.create_server((host, int(port)))
    except OSError as error:
        sys.exit(str(error))
    time.sleep(600)
"""
"""A fake Java: formats nothing, and listens as a broker would."""


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces Java by a program that starts at once and only listens."""
    script = tmp_path / "fake_java.py"
    script.write_text(FAKE_JAVA)

    def command(*, heap: str, options: list[str]) -> list[str]:
        return [sys.executable, str(script), heap, *options]

    monkeypatch.setattr(module, "java_command", command)
    monkeypatch.setattr(module, "kafka_class_path", lambda: "none")
    monkeypatch.setattr(module, "wait_until_serving", lambda _, pause: pause("just opened"))


@pytest.mark.usefixtures("fake_java")
def test_another_port_and_a_log_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process listens on the port by then, the broker gets another one.

    If an exception leaves the block, the temporary log is kept, and a note has its path.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        choices = [[taken.getsockname()[1], *free_ports(1)], free_ports(2)]
        left = list(choices)
        monkeypatch.setattr(module, "free_ports", lambda *_: left.pop(0))
        kafka = RealKafka()
        with pytest.raises(ZeroDivisionError) as failure, kafka:
            assert kafka.bootstrap_servers == f"127.0.0.1:{choices[1][0]}"
            raise ZeroDivisionError
    assert str(kafka.log_path) in "".join(failure.value.__notes__)
    assert kafka.log_path.exists()
    kafka.log_path.unlink()


@pytest.mark.usefixtures("fake_java")
def test_ports_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every port is taken, the last failure is raised, and no file is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(module, "free_ports", lambda *_: [taken.getsockname()[1]] * 2)
        kafka = RealKafka(log_path=tmp_path / "kafka.log")
        with pytest.raises(KafkaUnavailableError, match="Address already in use"):
            kafka.start()
    assert repr(kafka) == "<RealKafka, not running>"


@pytest.mark.usefixtures("fake_java")
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The error has the end of the log and its path; the log is kept."""
    log = tmp_path / "kafka.log"
    kafka = RealKafka({"fake": "is refused"}, log_path=log)
    with pytest.raises(KafkaUnavailableError, match="fake: is refused") as failure:
        kafka.start()
    assert str(log) in str(failure.value)
    assert log.exists()


@pytest.mark.usefixtures("fake_java")
def test_a_broker_that_is_not_ready_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is not ready in time is killed, and the error has the reason."""

    def never(_: str, pause: Callable[[str], None]) -> None:
        while True:
            pause("no coordinator")

    # Even if the fake takes longer to open its port, the reason is the one that `never` gives.
    monkeypatch.setattr(
        module,
        "wait_until_open",
        lambda pid, port, _: wait_until_open(pid, port, lambda _: time.sleep(PAUSE)),
    )
    monkeypatch.setattr(module, "wait_until_serving", never)
    kafka = RealKafka()
    with pytest.raises(KafkaUnavailableError, match="not ready 2.5 s .* no coordinator"):
        kafka.start(timeout=2.5)
    assert repr(kafka) == "<RealKafka, not running>"
    kafka.log_path.unlink()


@pytest.mark.usefixtures("fake_java")
def test_options_of_java() -> None:
    """By default Java gets options for short runs, which the user can replace."""
    for broker, wanted in (
        (RealKafka(), QUICK),
        (RealKafka(java_options=["-Done=1"]), ["-Done=1"]),
    ):
        with broker as kafka:
            given = psutil.Process(kafka.pid).cmdline()
        assert [one for one in given if one in {*QUICK, "-Done=1"}] == [*wanted]


@pytest.mark.usefixtures("fake_java")
def test_a_frozen_broker_is_killed() -> None:
    """A broker that ignores SIGTERM is killed, with a warning, and can be started again."""
    with RealKafka() as kafka:
        frozen = psutil.Process(kafka.pid)
        frozen.suspend()
        wait_until_one_is_stopped([frozen])
        with pytest.warns(RuntimeWarning, match=f"Kafka at {kafka.bootstrap_servers} .* killed"):
            kafka.stop(timeout=0.2)
        kafka.stop()
        kafka.start()
        assert "broker.session.timeout.ms=2000" in (kafka.folder / "server.properties").read_text()
    assert not kafka.log_path.exists()


@pytest.mark.real_kafka
def test_storage_that_cannot_be_formatted_says_why(tmp_path: Path) -> None:
    """A setting that Kafka refuses is in the error, although Kafka does not log it."""
    kafka = RealKafka({"group.max.size": "many"}, log_path=tmp_path / "kafka.log")
    with pytest.raises(KafkaUnavailableError, match="Invalid value many for configuration"):
        kafka.start()


def test_a_failed_start_is_not_repeated(tmp_path: Path) -> None:
    """After a failed start, later users get the same error at once."""
    tries = 0

    def fail(_: Path) -> RealKafka:
        nonlocal tries
        tries += 1
        raise KafkaUnavailableError("no network")

    for _ in range(2):
        with pytest.raises(KafkaUnavailableError, match="no network"), shared_kafka(tmp_path, fail):
            pytest.fail("there is no broker")
    assert tries == 1


def test_the_tail_of_a_missing_log(tmp_path: Path) -> None:
    """If there is no log, its tail says so and raises no second error."""
    assert "No such file" in tail(tmp_path / "none", 3)
