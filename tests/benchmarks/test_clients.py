"""The adapters of the Python clients read, commit and end, against the embedded broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from benchmarks.clients.builds import MissingError
from benchmarks.clients.job import Ended, Job
from benchmarks.clients.roster import CLIENTS, in_python, present
from benchmarks.clients.sinks import SINKS
from benchmarks.clients.worker import ADAPTERS, adapter_of
from benchmarks.handover.judge import read_journal
from benchmarks.processes import environment
from kgroup.testing.embedded import EmbeddedKafka

# kafka-python reads its own files in a way that the standard library gives up.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
RECORDS = 20
GROUPLESS = {"confluent-raw", "confluent-checked", "kgroup-source"}
NEW_PROTOCOL = {"confluent-kip848"}


def job_for(kafka: EmbeddedKafka, name: str, folder: Path, **more: object) -> Job:
    """A job that reads a topic of two partitions."""
    kafka.create_topic("t", 2)
    for partition in (0, 1):
        kafka.append("t", partition, [b"1.5"] * (RECORDS // 2))
    return Job(
        servers=kafka.bootstrap_servers,
        topic="t",
        group=f"group-{name}",
        partitions=2,
        journal=str(folder / "journal"),
        **more,  # type: ignore[arg-type]
    )


def test_a_client_s_process_is_as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports no tool for tests, which is here only because tests run here."""
    monkeypatch.delenv("PYTHONPATH")
    script = "import sys, kgroup.group; sys.exit('hypothesis.core' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True)
    assert find_spec("hypothesis") is not None


@pytest.mark.parametrize("name", sorted(set(ADAPTERS) - NEW_PROTOCOL))
def test_an_adapter_reads_and_ends(
    embedded_kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """A client hands over every record once, commits them, and returns when it is asked to end."""
    job = job_for(embedded_kafka, name, tmp_path)
    ended = Ended()
    sink = SINKS["journal"](job, ended)
    got = 0

    def note(number: int, rows: object) -> None:
        nonlocal got
        sink.note(number, rows)  # type: ignore[arg-type]
        got += number
        if got >= RECORDS:
            ended.set()

    adapter_of(name)(job, note, ended)
    sink.close()
    records = read_journal((tmp_path / "journal").read_text())
    assert sorted((one.partition, one.offset) for one in records) == [
        (partition, offset) for partition in (0, 1) for offset in range(RECORDS // 2)
    ]
    assert {one.sent for one in records} == {1.5}
    if name not in GROUPLESS:
        committed = embedded_kafka.committed(job.group)
        assert {one.offset for one in committed.values()} == {RECORDS // 2}


@pytest.mark.parametrize("waits", [False, True])
def test_aiokafka_ends_without_waiting_for_a_record(
    embedded_kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """Its end is measured, so it must not contain the rest of a poll, which here lasts an hour."""
    job = job_for(embedded_kafka, "aiokafka", tmp_path, commit=False)
    ended, got = Ended(), 0
    getmany = AIOKafkaConsumer.getmany

    async def for_an_hour(consumer: object, *, timeout_ms: int, max_records: int) -> object:
        assert timeout_ms
        if got >= RECORDS:
            asyncio.get_running_loop().call_soon(ended.set)
        return await getmany(consumer, timeout_ms=3_600_000, max_records=max_records)

    def note(number: int, rows: object) -> None:
        del rows
        nonlocal got
        got += number
        if got >= RECORDS and not waits:
            ended.set()

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", for_an_hour)
    adapter_of("aiokafka")(job, note, ended)
    assert got == RECORDS


@pytest.mark.parametrize("name", ["kgroup", "confluent-eager", "aiokafka", "kafka-python"])
def test_several_members_run_in_one_process(
    embedded_kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """Each member is in a group of its own, and reads all records."""
    job = job_for(
        embedded_kafka, name, tmp_path, members=2, sink="meter", records=2 * RECORDS, each=True
    )
    ended = Ended()
    sink = SINKS["meter"](job, ended)
    adapter_of(name)(job, sink.note, ended)
    sink.close()
    assert json.loads((tmp_path / "journal").read_text())["rate"] > 0


@pytest.mark.parametrize(
    ("name", "durations"), [("kgroup", 3), ("kgroup-threads", 3), ("confluent-eager", 2)]
)
def test_a_start_is_measured(
    embedded_kafka: EmbeddedKafka, tmp_path: Path, name: str, durations: int
) -> None:
    """There are the times to the first record and to the end, and kgroup's to its partitions."""
    job = job_for(embedded_kafka, name, tmp_path, sink="first")
    ended = Ended()
    sink = SINKS["first"](job, ended)
    adapter_of(name)(job, sink.note, ended)
    sink.close()
    found = list(map(float, (tmp_path / "journal").read_text().split()))
    assert len(found) == durations
    assert all(seconds <= found[0] for seconds in found[2:])


def test_a_job_survives_its_process() -> None:
    """A worker is given the job that its benchmark has made."""
    job = Job(servers="h:1", topic="t", group="g", work=0.25, commit=False, each=True, members=3)
    assert Job.parse(job.arguments()) == job
    assert job.groups() == ["g-0", "g-1", "g-2"]


def test_a_missing_client_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A client that is not installed is left out with its reason, in the result and aloud."""
    missing = in_python("missing", "no-such-package")
    with pytest.raises(MissingError, match="no-such-package is not installed"):
        missing.command()
    there = present(["kgroup", "missing"], {**CLIENTS, "missing": missing})
    assert [client.name for client in there.clients] == ["kgroup"]
    assert there.left_out == {"missing": "the Python package no-such-package is not installed"}
    assert "*** LEFT OUT: missing: " in capsys.readouterr().err
