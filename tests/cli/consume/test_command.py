"""``kgroup consume`` against both brokers: where it begins, what it prints, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest
import trio
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer

from kgroup.cli import main
from kgroup.cli.consume import reading
from kgroup.cli.consume.command import notice_of
from kgroup.cli.groups.values import Group, GroupMember
from kgroup.security.settings import Security
from kgroup.testing import admin
from kgroup.types import IsolationLevel, TopicPartition
from tests.behaviour.test_damage import DAMAGED, damage
from tests.brokers import EMBEDDED, Kafka, unique

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""
MOMENT: Final = 1_700_000_000_000
RECORDS: Final = 10
PROGRAM: Final = "from kgroup.cli import main; main(prog_name='kgroup')"


def options(kafka: Kafka, *arguments: str) -> list[str]:
    """The arguments of a command on a broker."""
    return [
        "consume",
        *arguments,
        "--bootstrap-servers",
        kafka.bootstrap_servers,
        "--timeout",
        "120",
    ]


def run(kafka: Kafka, *arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, options(kafka, *arguments))


def offsets(result: Result) -> dict[int, list[int]]:
    """The offsets of each partition that were printed as JSON."""
    assert result.exit_code == 0, result.output
    found: dict[int, list[int]] = {}
    for line in result.stdout.splitlines():
        one = json.loads(line)
        found.setdefault(one["partition"], []).append(one["offset"])
    return found


def committed(kafka: Kafka, group: str, topic: str) -> dict[int, int | None]:
    """What a group has committed of the two partitions."""
    names = [TopicPartition(topic, number) for number in range(2)]
    found = admin.committed_offsets(kafka.bootstrap_servers, group, names)
    return {name.partition: at and at.offset for name, at in found.items()}


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of two partitions; the records of each are a second apart."""
    name = unique("orders")
    admin.create_topic(kafka.bootstrap_servers, name, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(2):
        for number in range(RECORDS):
            producer.produce(
                name,
                json.dumps({"n": number}).encode(),
                f"k{number}".encode(),
                partition=partition,
                timestamp=MOMENT + number * 1000,
                headers=[("trace", b"ab")],
            )
    producer.flush(120)
    return name


ALL: Final = list(range(RECORDS))


@once
@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("earliest", ALL),
        ("7", [7, 8, 9]),
        ("100", []),
        ("2023-11-14T22:13:26.500Z", [7, 8, 9]),
        ("2099-01-01T00:00:00Z", []),
        ("latest", []),
    ],
)
def test_where_it_begins(kafka: Kafka, topic: str, begin: str, expected: Sequence[int]) -> None:
    """Every partition is read in its order from the position to the end."""
    found = offsets(run(kafka, topic, "--from", begin, "--until-end", "--json"))
    assert found == ({0: expected, 1: expected} if expected else {})


def test_what_it_prints(kafka: Kafka, topic: str) -> None:
    """A record has its place, time, key, headers and value; partitions and number are limits."""
    given = [topic, "--partition", "1", "--max-records", "1", "--from", "3", "--format", "json"]
    assert run(kafka, *given).stdout == (
        f'{topic}-1 @3  2023-11-14T22:13:23.000Z  key=k3  trace=ab\n{{\n  "n": 3\n}}\n'
    )
    line = json.loads(run(kafka, *given, "--key-format", "hex", "--json").stdout)
    assert line == {
        "topic": topic,
        "partition": 1,
        "offset": 3,
        "timestamp": "2023-11-14T22:13:23.000Z",
        "key_hex": b"k3".hex(),
        "headers": [{"name": "trace", "value": "ab"}],
        "value_json": {"n": 3},
    }


def test_a_group_continues_where_it_ended(kafka: Kafka, topic: str) -> None:
    """What was printed is committed, and nothing else; the next run prints the rest."""
    group = unique("readers")
    first = offsets(run(kafka, topic, "--group", group, "--max-records", "7", "--json"))
    assert sum(map(len, first.values())) == 7
    assert committed(kafka, group, topic) == {
        number: first[number][-1] + 1 if number in first else None for number in range(2)
    }
    second = offsets(run(kafka, topic, "--group", group, "--until-end", "--json"))
    assert {one: first.get(one, []) + second.get(one, []) for one in range(2)} == {0: ALL, 1: ALL}
    assert committed(kafka, group, topic) == {0: RECORDS, 1: RECORDS}


def test_a_member_that_joins(kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance waits only until the command has committed what it printed."""
    monkeypatch.setattr(reading, "_COMMIT_INTERVAL", 3600.0)
    group = unique("readers")
    options = reading.ConsumeOptions(
        bootstrap_servers=kafka.bootstrap_servers,
        security=Security(),
        isolation=IsolationLevel.READ_UNCOMMITTED,
        topics=(topic,),
        group_id=group,
        from_beginning=True,
        positions={},
        timeout=120,
    )
    other = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        with reading.Reading(options, lambda _: None) as first:
            while not first.finished:
                first.printed(first.next())
            assert committed(kafka, group, topic) == {0: None, 1: None}
            other.subscribe([topic])
            while not other.assignment():
                other.poll(0.1)
                first.next()
            assert committed(kafka, group, topic) == {0: RECORDS, 1: RECORDS}
    finally:
        other.close()


@once
async def test_a_batch_that_cannot_be_read(kafka: Kafka, topic: str) -> None:
    """What comes before it is printed; it is not, and the error says where it is."""
    admin.produce(kafka.bootstrap_servers, topic, [DAMAGED], partition=0)
    async with damage(kafka) as (_, way):
        given = ["consume", topic, "--partition", "0", "--until-end", "--json"]
        given += ["--bootstrap-servers", way]
        result = await trio.to_thread.run_sync(CliRunner().invoke, main, given)
    assert result.exit_code == 1
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == ALL
    assert f"Error: {topic}-0 at offset {RECORDS} cannot be read: " in result.stderr


@once
def test_a_place_outside_the_log_is_reported(kafka: Kafka, topic: str) -> None:
    """It begins at the nearest offset there is, and says so on standard error."""
    result = run(kafka, topic, "--partition", "0", "--from", "100", "--until-end")
    assert result.stderr == f"{topic}-0 has the offsets 0 to 9: begins at 10\n"


@once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(kafka: Kafka, topic: str, number: signal.Signals) -> None:
    """It commits what it printed, leaves the group, and ends with the signal's status."""
    group = unique("readers")
    command = [sys.executable, "-c", PROGRAM, *options(kafka, topic, "--group", group, "--json")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 * RECORDS):
            process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (128 + number, "")
    assert committed(kafka, group, topic) == {0: RECORDS, 1: RECORDS}


@once
def test_a_reader_that_has_enough(kafka: Kafka, topic: str) -> None:
    """Where the other side of a pipe closes, as ``head`` does, there is no traceback."""
    command = [sys.executable, "-c", PROGRAM, *options(kafka, topic, "--json")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        admin.produce(kafka.bootstrap_servers, topic, ["more"])
        assert process.wait(120) == 1
        assert process.stderr.read() == ""


@once
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["TOPIC", "--partition", "2"], 1, "has no partition 2; it has the partitions 0 to 1"),
        (["TOPICx"], 1, "did you mean"),
        (["a/b"], 2, "the topic name 'a/b' has a character other than"),
        (["TOPIC", "--group", "g", "--partition", "0"], 2, "with --group the group decides"),
        (["TOPIC", "--group", "g", "--from", "5"], 2, "with --group the group decides"),
        (["TOPIC", "--from", "-5"], 2, "'-5' is refused: it must be earliest, latest"),
        (["TOPIC", "--max-records", "0"], 2, "a whole number from 1 to"),
        ([], 2, "Missing argument 'TOPIC...'"),
    ],
)
def test_what_is_refused(
    kafka: Kafka, topic: str, arguments: Sequence[str], status: int, said: str
) -> None:
    """The error is one sentence, and nothing is printed."""
    result = run(kafka, *(one.replace("TOPIC", topic) for one in arguments))
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in " ".join(result.stderr.split())


def test_a_value_of_any_kind(kafka: Kafka, topic: str) -> None:
    """Tombstones, empty values and bytes that are no text are printed."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    values: list[Any] = [None, b"", b"\xff"]
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(120)
    given = [topic, "--partition", "0", "--from", str(RECORDS), "--until-end"]
    shown = run(kafka, *given).stdout.splitlines()
    assert shown[1::2] == ["(null)", "", "0xff"]


def test_a_group_that_has_members() -> None:
    """The reader learns that the command takes part, and how to read without that."""
    member = GroupMember(member_id="m", client_id="c", host="h", partitions=())
    assert notice_of(None) == ""
    assert notice_of(Group(group_id="g", state="Empty", protocol="classic")) == ""
    group = Group(group_id="g", state="Stable", protocol="classic", members=(member, member))
    assert "group 'g' has 2 members: this command joins them" in notice_of(group)
