"""``kgroup assign``: its options, its output, its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kgroup.cli.assign.command import assign
from kgroup.config import GroupConfig
from kgroup.testing import admin
from kgroup.threaded import ConsumerGroup
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.brokers import Kafka, unique
from tests.cli.assign.groups import line


class First:
    """Gives all to the first member."""

    name = "first"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Give all to the first member, or fail where there is no topic."""
        (topic,) = topics.values()
        names = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        return {members[0].member_id: names}


OWN = f"{__name__}:First"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pytest imports this file by its path; the command imports it by its name."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules[First.__module__])


def run(*arguments: str, given: bytes | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(assign, arguments, input=given)


def test_all_assignors_side_by_side(tmp_path: Path) -> None:
    """A file's group is shown with each of Kafka's assignors."""
    (tmp_path / "group.json").write_bytes(line())
    result = run(str(tmp_path / "group.json"))
    assert result.exit_code == 0
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky", "2 members"):
        assert name in result.output


def test_chosen_assignors_as_json() -> None:
    """The results are in the order of the options; a custom assignor may be among them."""
    arguments = ["-", "--output", "json", "--assignor", OWN, "--assignor", "sticky"]
    result = run(*arguments, given=line())
    plans = json.loads(result.stdout)["plans"]
    assert [plan["assignor"] for plan in plans] == ["first", "sticky"]
    assert plans[0]["by_member"]["difference"] == 4


def test_lines_are_answered() -> None:
    """Each line is printed with its assignment; a wrong one is reported, and the status is 1."""
    result = run("--json", given=line() + b"no\n" + line("sticky"))
    assert result.exit_code == 1
    assert [json.loads(one)["assignor"] for one in result.stdout.splitlines()] == [
        "range",
        "sticky",
    ]
    assert result.stderr == "line 2: it is not JSON: Expecting value at character 1\n"
    assert run("--json", given=line()).exit_code == 0
    assert run("--json", given=b"").exit_code == 0
    own = run("--json", "--assignor", OWN, given=line())
    assert len(json.loads(own.stdout)["assignment"]["a"]) == 4


def test_a_line_is_answered_before_the_next_comes() -> None:
    """A program that writes line by line gets each answer before it writes the next line."""
    command = [sys.executable, "-c", "from kgroup.cli import main; main()", "assign", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in ("range", "roundrobin"):
            process.stdin.write(line(name))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["assignor"] == name
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "give FILE, or --bootstrap-servers with --group, or --json"),
        (["-", "--group", "g"], "give FILE, or"),
        (["--group", "g"], "--bootstrap-servers and --group must be given together"),
        (["--json", "-"], "--json reads standard input"),
        (["--json", "--output", "json"], "--json reads standard input"),
        (["--json", "--assignor", "range", "--assignor", "sticky"], "at most one --assignor"),
        (["-", "--assignor", "mine"], "no assignor 'mine' is built in"),
        (["-", "--assignor", "range", "--assignor", "range"], "two assignors have the name"),
        (["-", "--assignor", "nowhere:X"], "'nowhere:X' cannot be imported"),
        (["--bootstrap-servers", "a..b:9092", "--group", "g"], "its host has an empty label"),
        (["-", "--assignor", "sys:path"], "an assignor is an object with a name"),
        (["nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], fault: str) -> None:
    """The message says what is wrong, and the status is 2."""
    result = run(*arguments, given=line())
    assert result.exit_code == 2
    assert fault in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "given", "fault"),
    [
        (["-"], b"{}", "standard input: it has no 'topics'"),
        (["-", "--assignor", OWN], line(topics={}), "assignor 'first': ValueError"),
        (["--bootstrap-servers", "localhost:1", "--group", ""], b"", "group_id='' is refused"),
    ],
)
def test_a_group_without_a_result_is_an_error(
    arguments: list[str], given: bytes, fault: str
) -> None:
    """The error is one line without a traceback, and the status is 1."""
    result = run(*arguments, given=given)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert fault in result.stderr


def test_a_live_group(kafka: Kafka) -> None:
    """The result has the member and what it owns, which sticky leaves in place."""
    topic = unique("orders")
    admin.create_topic(kafka.bootstrap_servers, topic, 3)
    config = GroupConfig(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        topics=[topic],
    )
    with ConsumerGroup(config) as group:
        generation = group.next()
        servers = ["--bootstrap-servers", kafka.bootstrap_servers, "--group", topic]
        result = run(*servers, "--assignor", "sticky", "--output", "json")
        assert result.exit_code == 0, result.stderr
        (plan,) = json.loads(result.stdout)["plans"]
        assert (plan["owned"], plan["moved"]) == (3, 0)
        assert plan["assignment"] == {generation.member_id: [[topic, n] for n in range(3)]}
