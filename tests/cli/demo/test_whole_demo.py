"""The whole demo, as a person runs it: on its own broker, and on Apache Kafka."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from kgroup.testing.kafka import KafkaAddress
from tests.child_processes import children_where
from tests.stopped import wait_until_one_is_stopped

LINES: Final = 6000
KEYS: Final = {
    "produced",
    "processed",
    "lost",
    "repeated_planned",
    "repeated_after_kill",
    "generations",
    "stale_commits_refused",
    "counts_equal",
}
COMMAND: Final = [sys.executable, "-P", "-c", "from kgroup.cli import main; main()", "demo"]

# A session has to run out twice, and the machine may be busy.
pytestmark = pytest.mark.timeout(500)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the demo keep files in the test's folder, which is removed with the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def run_demo(*options: str) -> tuple[str, dict[str, Any]]:
    """Run a demo, which must succeed; return its output and its report."""
    command = [*COMMAND, "--json", f"--lines={LINES}", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    text, _, last = ended.stdout.rstrip("\n").rpartition("\n")
    account = json.loads(last)
    assert account.keys() >= KEYS
    assert account["produced"] == account["processed"] == LINES
    assert account["lost"] == account["repeated_planned"] == 0
    assert account["counts_equal"] is True
    # One for the beginning and one for each event, the frozen worker's return included.
    assert account["generations"] >= 7
    assert account["repeated_after_kill"] <= account["uncommitted_at_kill"]
    return text, account


def test_on_its_own_broker() -> None:
    """Each stage is printed with the partitions' owners after it, and the report has no fault."""
    text, _ = run_demo()
    assert "\x1b" not in text
    stories = [
        r"worker-4 has ",
        r"worker-\d is asked to stop",
        r"the topic has 9 partitions now",
        r"worker-\d is killed",
        r"worker-\d is frozen",
        r"worker-\d is woken",
        r"The account is right\.",
    ]
    assert re.search(".*".join(stories), text, re.DOTALL), text


def test_on_apache_kafka(real_kafka: KafkaAddress, tmp_path: Path) -> None:
    """The same on another cluster, with other text and numbers; the demo leaves nothing there."""
    file = tmp_path / "text"
    file.write_text("one line\nand another one\n")
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers})
    text, account = run_demo(
        f"--bootstrap-servers={real_kafka.bootstrap_servers}",
        f"--file={file}",
        "--workers=4",
        "--partitions=8",
    )
    assert account["words"] == 5 * LINES // 2
    assert "worker-5 has " in text
    assert "the topic has 12 partitions now" in text
    left = [name for name in admin.list_topics().topics if name.startswith("kgroup-demo-")]
    listed = [group.group_id for group in admin.list_consumer_groups().result().valid]
    groups = [name for name in listed if name.startswith("kgroup-demo-")]
    assert left == groups == []


def test_an_unreachable_cluster_is_reported() -> None:
    """The exit status is 1, and the report says why."""
    command = [*COMMAND, "--json", "--lines=1000", "--bootstrap-servers=127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (problem,) = json.loads(ended.stdout.splitlines()[-1])["problems"]
    assert "cannot be created" in problem
    assert f"WRONG: {problem}" in ended.stdout


def test_a_worker_that_dies_by_itself_is_reported() -> None:
    """The demo stops there, names the worker and how it ended, and exits with 1."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "A worker is added.")
        name = "worker-1"
        (process,) = children_where(
            # A process that has just been forked has no command line of its own.
            psutil.Process(demo.pid),
            lambda child: f'"name": "{name}"' in " ".join(child.cmdline()),
        )
        process.kill()
        rest = demo.stdout.read()
    assert demo.returncode == 1
    assert rest.count(f"WRONG: {name} ") == 1
    assert f"WRONG: {name} ended by itself with status -9: " in rest
    assert "that were never produced" not in rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_remains(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end everything first; after SIGKILL everything ends by itself."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "The first workers join.")
        process = psutil.Process(demo.pid)
        while len(process.children()) < 4:
            assert demo.poll() is None
        children = process.children(recursive=True)
        demo.send_signal(number)
        rest = demo.stdout.read()
        status = demo.wait()
    assert status == (-number if number == signal.SIGKILL else 128 + number), rest
    _, left = psutil.wait_procs(children, timeout=200)
    assert left == []


def test_no_process_remains_after_a_kill_during_a_freeze() -> None:
    """SIGKILL while a worker is frozen: broker, workers, and the frozen one too, end."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "is frozen (SIGSTOP)")
        children = psutil.Process(demo.pid).children(recursive=True)
        wait_until_one_is_stopped(children)
        demo.kill()
    # The workers' coordinator is gone with them: they drain and leave in vain.
    _, left = psutil.wait_procs(children, timeout=200)
    assert left == []


def read_until(lines: IO[str], text: str) -> None:
    """Read lines up to the one that has this text."""
    assert any(text in line for line in lines)
