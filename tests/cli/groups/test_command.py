"""``kgroup groups`` against both brokers: what it prints, what it changes, what it refuses."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from kgroup.cli import main
from kgroup.config import GroupConfig
from kgroup.testing import admin
from kgroup.threaded import ConsumerGroup
from kgroup.types import TopicPartition
from tests.brokers import EMBEDDED, REAL, Kafka, unique

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""
on_the_real_one = pytest.mark.parametrize(
    "kafka", [pytest.param(REAL, marks=pytest.mark.real_kafka)], indirect=True
)
RECORDS = 10
RESET_ONE = "--group {topic} --topic {topic}:0 --to 4 --new-group --execute"


def run(kafka: Kafka, command: str, *arguments: str) -> Result:
    """Run one of the commands in this process."""
    servers = ["--bootstrap-servers", kafka.bootstrap_servers, "--timeout", "120"]
    return CliRunner().invoke(main, ["groups", command, *servers, *arguments])


def found(kafka: Kafka, command: str, *arguments: str) -> Any:
    """The object that a command prints with ``--json``."""
    result = run(kafka, command, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its titles."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    start = next(number for number, cells in enumerate(lines) if cells[0].isupper())
    return lines[start + 1 :]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of two partitions with records; groups of tests have its name."""
    name = unique("orders")
    admin.create_topic(kafka.bootstrap_servers, name, 2)
    for partition in range(2):
        values = [str(number) for number in range(RECORDS)]
        admin.produce(kafka.bootstrap_servers, name, values, partition=partition)
    return name


def config(kafka: Kafka, topic: str, **settings: Any) -> GroupConfig:
    """The configuration of a member."""
    given = {"group_id": topic, "topics": [topic], **settings}
    return GroupConfig(bootstrap_servers=kafka.bootstrap_servers, **given)


@contextmanager
def one_member(kafka: Kafka, topic: str) -> Iterator[str]:
    """A static member that has committed 4 of partition 0; its member id."""
    settings = {"client_id": "worker", "group_instance_id": "one", "assignors": ["roundrobin"]}
    with ConsumerGroup(config(kafka, topic, **settings)) as group:
        generation = group.next()
        generation.seek(TopicPartition(topic, 0), 4)
        generation.commit({TopicPartition(topic, 0): 4})
        yield generation.member_id


def set_offsets(kafka: Kafka, topic: str, to: str = "4") -> None:
    """Let the group of the topic have committed offsets, and no members."""
    given = ["--group", topic, "--topic", topic, "--to", to, "--new-group", "--execute"]
    found(kafka, "reset", *given)


def committed(kafka: Kafka, topic: str) -> dict[int, int]:
    """The committed offset of each partition."""
    (group,) = found(kafka, "lag", "--group", topic)["groups"]
    return {one["partition"]: one["committed"] for one in group["partitions"]}


def test_a_live_group_is_described(kafka: Kafka, topic: str) -> None:
    """State, assignor and members with their hosts, ids and partitions are shown and in JSON."""
    with one_member(kafka, topic) as member_id:
        listed = {one["group_id"]: one for one in found(kafka, "list")["groups"]}
        assert listed[topic] == {"group_id": topic, "state": "Stable", "protocol": "classic"}
        (group,) = found(kafka, "describe", "--group", topic)["groups"]
        (member,) = group.pop("members")
        assert group.pop("coordinator").startswith(kafka.bootstrap_servers)
        assert group == {
            "group_id": topic,
            "state": "Stable",
            "protocol": "classic",
            "assignor": "roundrobin",
            "topics_not_seen": [],
        }
        assert member == {
            "member_id": member_id,
            "client_id": "worker",
            "host": "127.0.0.1",
            "group_instance_id": "one",
            "partitions": {topic: [0, 1]},
            "target": None,
            "topics": [topic],
        }
        result = run(kafka, "describe", "--group", topic)
        assert f"Group {topic}: Stable, 1 member, assignor roundrobin, classic protocol" in (
            result.stdout
        )
        assert rows(result.stdout) == [
            ["worker", "127.0.0.1", member_id, "one", "2", f"{topic} 0-1"]
        ]


def test_why_a_member_has_no_partitions(kafka: Kafka, topic: str) -> None:
    """The topics of each member are shown, and which of them are missing, with the nearest name."""
    misspelt = f"{topic}s"
    with ConsumerGroup(config(kafka, misspelt, group_id=topic, client_id="worker")) as group:
        member_id = group.next().member_id
        (described,) = found(kafka, "describe", "--group", topic)["groups"]
        assert described["topics_not_seen"] == [misspelt]
        assert [one["topics"] for one in described["members"]] == [[misspelt]]
        shown = run(kafka, "describe", "--group", topic).stdout
        assert "SUBSCRIBES TO" in shown
        assert ["worker", "127.0.0.1", member_id, "0", "-", misspelt] in rows(shown)
        assert f"'{misspelt}'; did you mean '{topic}'?" in " ".join(shown.split())
        assert "SUBSCRIBES TO" not in run(kafka, "describe").stdout


def test_the_lag_of_a_live_group(kafka: Kafka, topic: str) -> None:
    """Each partition has what is committed, the end, the lag and the owner."""
    with one_member(kafka, topic) as member_id:
        result = run(kafka, "lag", "--group", topic)
        assert rows(result.stdout) == [
            [topic, "0", "4", "10", "6", "worker at 127.0.0.1", "-"],
            [topic, "1", "-", "10", "-", "worker at 127.0.0.1", "nothing committed"],
        ]
        (group,) = found(kafka, "lag", "--group", topic, "--isolation-level", "read_committed")[
            "groups"
        ]
        assert (group["lag"], group["members"]) == (6, 1)
        assert {one["owner"]["member_id"] for one in group["partitions"]} == {member_id}


def test_a_live_group_is_not_changed(kafka: Kafka, topic: str) -> None:
    """Reset shows the plan and names the members; with --execute it is refused, as is delete."""
    with one_member(kafka, topic):
        live = (
            f"group '{topic}' has 1 member (worker at 127.0.0.1, static as 'one'); stop them first."
            " Of stopped members, static members (1 here) and killed ones remain until their"
            " session has ended (session_timeout, 30 s by default; 45 s in Kafka's Java client):"
            " wait for that long, and repeat the command"
        )
        plan = run(kafka, "reset", "--group", topic, "--to", "earliest")
        assert plan.exit_code == 0
        assert "plan; nothing has changed" in plan.stdout
        assert rows(plan.stdout) == [[topic, "0", "4", "0", "-4"]]
        assert live in plan.stderr
        refused = run(kafka, "reset", "--group", topic, "--to", "earliest", "--execute")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr == f"Error: {live}\n"
        assert run(kafka, "delete", "--group", topic).stderr == f"Error: {live}\n"
        assert committed(kafka, topic)[0] == 4


def test_a_reset_is_planned_and_then_done(kafka: Kafka, topic: str) -> None:
    """Nothing changes without --execute; offsets outside the log are clamped, and that is said."""
    set_offsets(kafka, topic)
    given = ["--group", topic, "--topic", f"{topic}:1", "--to", "+100"]
    note = "104 is not in the log: it ends at 10"
    assert rows(run(kafka, "reset", *given).stdout) == [[topic, "1", "4", "10", "+6", note]]
    assert committed(kafka, topic) == {0: 4, 1: 4}
    result = run(kafka, "reset", *given, "--execute")
    assert result.stdout.startswith(f"Group {topic}: reset\n")
    assert committed(kafka, topic) == {0: 4, 1: 10}
    for to, expected in (("earliest", 0), ("latest", 10), ("7", 7), ("-2", 5), ("1h", 0)):
        done = found(kafka, "reset", "--group", topic, "--to", to, "--execute")
        assert (done["executed"], done["members"], done["to"]) == (True, 0, to)
        assert committed(kafka, topic) == {0: expected, 1: expected}


@once
def test_a_reset_that_sets_nothing(kafka: Kafka, topic: str) -> None:
    """It does not claim to have reset the group, which does not even exist after it."""
    group = unique("new")
    given = ["--group", group, "--new-group", "--topic", topic, "--to", "+3", "--execute"]
    result = run(kafka, "reset", *given)
    assert result.stdout.startswith(f"Group {group}: nothing to set; all partitions stay")
    assert not found(kafka, "reset", *given)["executed"]
    assert run(kafka, "describe", "--group", group).exit_code == 1


def test_groups_are_deleted(kafka: Kafka, topic: str) -> None:
    """A group without members is gone with its offsets; then there is none of that name."""
    set_offsets(kafka, topic)
    assert run(kafka, "delete", "--group", topic).stdout == f"Group {topic}: deleted\n"
    gone = run(kafka, "describe", "--group", topic)
    assert gone.exit_code == 1
    assert gone.stderr.startswith(f"Error: there is no group '{topic}'")
    set_offsets(kafka, topic)
    deleted = [{"group_id": topic, "deleted": True, "error": None}]
    assert found(kafka, "delete", "--group", topic, "--group", topic) == {"groups": deleted}


@once
def test_what_does_not_exist(kafka: Kafka, topic: str) -> None:
    """The nearest name is offered, and nothing is changed."""
    set_offsets(kafka, topic)
    near = f"there is no group '{topic}x'; did you mean '{topic}'?"
    for command in (["describe"], ["lag"], ["delete"], ["reset", "--to", "latest", "--execute"]):
        result = run(kafka, *command, "--group", f"{topic}x")
        assert result.exit_code == 1
        assert near in result.stderr
    wrong = run(kafka, "reset", "--group", topic, "--to", "latest", "--topic", f"{topic}x")
    assert f"did you mean '{topic}'?" in wrong.stderr
    none = run(kafka, "reset", "--group", unique("new"), "--to", "latest", "--new-group")
    assert (
        "has committed no offsets, or this user lacks DESCRIBE on their topics; name" in none.stderr
    )


@once
def test_partitions_without_a_commit_are_listed(kafka: Kafka, topic: str) -> None:
    """The total is without them, and the text and JSON say of how many; also without members."""
    run(kafka, "reset", *RESET_ONE.format(topic=topic).split())
    result = run(kafka, "lag", "--group", topic)
    assert f"Group {topic}: Empty, no members, lag 6 in 2 partitions, 1 of them unknown" in (
        result.stdout
    )
    assert rows(result.stdout) == [
        [topic, "0", "4", "10", "6", "-", "-"],
        [topic, "1", "-", "10", "-", "-", "nothing committed"],
    ]
    (group,) = found(kafka, "lag", "--group", topic)["groups"]
    assert (group["lag"], group["unknown"], group["note"]) == (6, 1, None)


@once
def test_all_groups(kafka: Kafka, topic: str) -> None:
    """Without names every group is shown, and a deleted topic is noted and left as it is."""
    set_offsets(kafka, topic)
    assert topic in {one["group_id"] for one in found(kafka, "lag")["groups"]}
    assert f"Group {topic}: Empty, no members" in run(kafka, "describe").stdout
    assert [topic, "Empty", "classic"] in rows(run(kafka, "list").stdout)


def test_a_group_with_a_blank_name(kafka: Kafka, topic: str) -> None:
    """It hides no other group and can be deleted: Kafka lets programs commit for such a group."""
    set_offsets(kafka, topic)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    offsets = [confluent_kafka.TopicPartition(topic, 0, 4)]
    request = confluent_kafka.ConsumerGroupTopicPartitions(" ", offsets)
    client.alter_consumer_group_offsets([request])[" "].result(120)
    lags = {one["group_id"]: one["lag"] for one in found(kafka, "lag")["groups"]}
    assert (lags[" "], lags[topic]) == (6, 12)
    assert found(kafka, "delete", "--group", " ")["groups"][0]["deleted"]


@on_the_real_one
def test_a_group_of_the_consumer_protocol(kafka: Kafka, topic: str) -> None:
    """A KIP-848 group is described as far as librdkafka can, and is not changed while it lives."""
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic,
        "group.protocol": "consumer",
        "client.id": "new",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    assigned = threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())
    try:
        while not assigned.is_set():
            consumer.poll(0.1)
        position = confluent_kafka.TopicPartition(topic, 0, 3)
        consumer.commit(offsets=[position], asynchronous=False)
        (group,) = found(kafka, "describe", "--group", topic)["groups"]
        assert (group["protocol"], group["assignor"]) == ("consumer", "uniform")
        (member,) = group["members"]
        assert (member["client_id"], member["partitions"]) == ("new", {topic: [0, 1]})
        assert member["target"] == {topic: [0, 1]}
        assert committed(kafka, topic) == {0: 3, 1: None}
        refused = run(kafka, "reset", "--group", topic, "--to", "latest", "--execute")
        assert "has 1 member (new at 127.0.0.1); stop them first" in refused.stderr
    finally:
        consumer.close()
    found(kafka, "reset", "--group", topic, "--to", "latest", "--execute")
    assert committed(kafka, topic) == {0: RECORDS, 1: None}
