"""``kgroup broker``: the line when it is ready, options, signals, refused arguments."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from kgroup.cli.broker import broker

READY = re.compile(r"kgroup broker is ready at (\S+:\d+); it keeps nothing on disk(; .*)?\n")
PATIENCE = 150.0


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker in a process of its own, once it is ready: (process, address)."""
    program = "from kgroup.cli import main; main(prog_name='kgroup')"
    command = [sys.executable, "-c", program, "broker", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": ""}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = READY.fullmatch(line)
            assert ready, line
            yield process, ready[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_broker_serves_until_a_signal(number: signal.Signals) -> None:
    """It prints its address, has the topics that the options name, and exits with status 0."""
    with running("--listen", "127.0.0.1:0", "--topic", "a:2", "--topic", "b:1") as (process, where):
        admin = AdminClient({"bootstrap.servers": where})
        topics = admin.list_topics(timeout=PATIENCE).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"a": 2, "b": 1}
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_a_setting_holds() -> None:
    """A property given with --set can be read back from the broker."""
    with running("--listen", "127.0.0.1:0", "--set", "node.id=7") as (_, where):
        admin = AdminClient({"bootstrap.servers": where})
        assert set(admin.list_topics(timeout=PATIENCE).brokers) == {7}


def test_several_brokers_are_listed() -> None:
    """With --brokers the command prints every address, and each broker leads partitions."""
    options = ["--listen", "127.0.0.1:0", "--brokers", "3", "--topic", "a:3"]
    with running(*options) as (_, where):
        assert len(where.split(",")) == 3
        found = AdminClient({"bootstrap.servers": where}).list_topics(timeout=PATIENCE)
        assert set(found.brokers) == {1, 2, 3}
        assert {part.leader for part in found.topics["a"].partitions.values()} == {1, 2, 3}


def test_users_and_tls(tmp_path: Path) -> None:
    """librdkafka logs in by PLAIN and SCRAM over TLS, with the authority that was written."""
    ca = tmp_path / "ca.pem"
    options = ["--listen", "localhost:0", "--tls", "--write-ca", str(ca), "--topic", "a:1"]
    with running(*options, "--user", "alice:a:b", "--session-lifetime", "60") as (_, where):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            admin = AdminClient(
                {
                    "bootstrap.servers": where,
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(ca),
                    "sasl.mechanism": mechanism,
                    "sasl.username": "alice",
                    "sasl.password": "a:b",
                }
            )
            assert set(admin.list_topics(timeout=PATIENCE).topics) == {"a"}


def test_rules_of_access() -> None:
    """A user may do what the rules allow, and a superuser changes them by an admin client."""
    options = ["--listen", "127.0.0.1:0", "--user", "alice:a", "--user", "admin:b"]
    options += ["--topic", "orders-eu:1", "--topic", "other:1", "--super-user", "admin"]
    options += ["--acl", "alice:describe:topic:*", "--acl", "deny:alice:all:topic:orders-*"]
    with running(*options) as (_, where):
        alice, admin = (
            AdminClient(
                {
                    "bootstrap.servers": where,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": user,
                    "sasl.password": password,
                }
            )
            for user, password in (("alice", "a"), ("admin", "b"))
        )
        assert set(alice.list_topics(timeout=PATIENCE).topics) == {"other"}
        denial = AclBinding(
            ResourceType.TOPIC,
            "orders-",
            ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            AclOperation.ALL,
            AclPermissionType.DENY,
        )
        anything: Any = None  # the stubs do not know that it is allowed
        every, prefixed = (
            AclBindingFilter(
                ResourceType.ANY,
                anything,
                pattern,
                anything,
                anything,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            for pattern in (ResourcePatternType.ANY, ResourcePatternType.PREFIXED)
        )
        found = admin.describe_acls(every, request_timeout=PATIENCE).result(PATIENCE)
        assert len(found) == 2
        assert denial in found
        (deleted,) = admin.delete_acls([prefixed], request_timeout=PATIENCE).values()
        assert deleted.result(PATIENCE) == [denial]
        assert set(alice.list_topics(timeout=PATIENCE).topics) == {"orders-eu", "other"}


def invoke(*options: str) -> Result:
    """Run the command in this process, where it is expected to fail."""
    return CliRunner().invoke(broker, options)


def test_output_that_cannot_be_written_is_no_fault_of_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its output cannot be written, the command ends with an error that says so."""

    def fail(line: str) -> None:
        del line
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("kgroup.cli.broker.click.echo", fail)
    with pytest.raises(click.ClickException, match="^the output cannot be written: Broken pipe$"):
        broker.main(["--listen", "127.0.0.1:0"], standalone_mode=False)


def test_a_port_in_use_is_a_clear_error() -> None:
    """The error names the address and the reason, without a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = invoke("--listen", where)
    assert result.exit_code == 1
    assert result.output == f"Error: cannot listen on {where}: Address already in use\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "group.max.sise=3"], "did you mean 'group.max.size'?"),
        (["--set", "num.partitions=none"], "num.partitions='none' is refused"),
        (["--set", "num.partitions"], "'num.partitions' is not KEY=VALUE"),
        (["--listen", "9092"], "'9092' is not HOST:PORT"),
        (["--listen", "localhost:70000"], "'localhost:70000' is not HOST:PORT"),
        (["--listen", "localhost:65535", "--brokers", "2"], "it leaves no room for 2 brokers"),
        (["--brokers", "0"], "'0' is refused: it must be a whole number from 1 to 100"),
        (["--listen", "a..b:0"], "its host has an empty label"),
        (["--set", "node.id=2147483647", "--brokers", "3"], "it must be at most 2147483645"),
        (["--set", "offsets.topic.num.partitions=2147483647"], "a whole number from 1 to 10000"),
        (["--set", "transaction.state.log.num.partitions=10001"], "from 1 to 10000"),
        (["--topic", "a:10001"], "a whole number from 1 to 10000"),
        (["--topic", "a"], "'a' is not NAME:PARTITIONS"),
        (["--acl", "alice"], "'alice' is not USER:OPERATION:TYPE[:NAME], such as alice:read:topic"),
        (["--acl", "alice:read:topic"], "only a rule about the cluster needs no name"),
        (["--acl", "alice:read:topic:"], "only a rule about the cluster needs no name"),
        (["--acl", "deny:alice:read:GROUP"], "only a rule about the cluster needs no name"),
        (["--acl", "alice:read:topics:a"], "it must be topic, group, cluster"),
        (["--acl", "alice:reed:topic:a"], "it must be an AclOperation's name"),
        (["--acl", ":read:topic:a"], "user"),
        (["--topic", "a:0"], "'a:0' is not NAME:PARTITIONS"),
        (["--write-ca", "ca.pem"], "--write-ca ca.pem has no effect: it needs --tls"),
        (
            ["--write-ca", "ca.pem", "--tls", "--certificate", "b.pem"],
            "with --certificate no certificate is made",
        ),
        (
            ["--user", "alice:a", "--acl", "alcie:read:topic:a"],
            "--acl names the user 'alcie', but there is no --user of that name; did you mean",
        ),
        (["--acl", "alice:read:topic:a"], "without --user every client is the user ANONYMOUS"),
        (["--user", "root:a", "--super-user", "rot"], "--super-user names the user 'rot'"),
        (["--session-lifetime", "5"], "--session-lifetime has no effect: without --user"),
        (
            ["--certificate", "b.pem"],
            "--certificate 'b.pem' is refused: it has no effect without --tls",
        ),
        (["--user", "root:a", "--super-user", "*"], "--super-user names the user '*'"),
    ],
)
def test_a_bad_option_is_refused(options: list[str], why: str) -> None:
    """The usage error says which option, what was given, and what is allowed."""
    result = invoke(*options)
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())


def test_a_bad_topic_is_refused() -> None:
    """A topic name that Kafka refuses, or one that is given twice, is an error at the start."""
    result = invoke("--listen", "127.0.0.1:0", "--topic", "a/b:1")
    assert result.exit_code == 2
    assert "topic name 'a/b' has a character other than" in result.output
    assert "the topic 'a' is given twice" in invoke("--topic", "a:1", "--topic", "a:2").output


@pytest.mark.parametrize("user", ["alice", "alice:", ":hunter2", "hunter2"])
def test_a_user_without_name_or_password_is_refused(user: str) -> None:
    """The error says the form, and does not repeat what may be a password."""
    ended = invoke("--user", user)
    assert ended.exit_code == 2
    assert "a user is NAME:PASSWORD" in ended.output
    assert "hunter2" not in ended.output


def test_an_authority_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """The error names the option and its file, and blames no address."""
    where = tmp_path / "none" / "ca.pem"
    ended = invoke("--listen", "localhost:0", "--tls", "--write-ca", str(where))
    assert ended.exit_code == 1
    assert f"--write-ca {where} cannot be written: No such file" in ended.output


def test_a_certificate_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    """The error names the option's file."""
    ended = invoke("--tls", "--certificate", str(tmp_path / "none.pem"))
    assert ended.exit_code == 1
    assert "--certificate " in ended.output
    assert "none.pem' is refused: no certificate" in ended.output
    assert "Traceback" not in ended.output


def test_no_program_that_makes_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the option and what to install."""
    monkeypatch.setitem(sys.modules, "trustme", None)
    ended = invoke("--listen", "127.0.0.1:0", "--tls")
    assert ended.exit_code == 1
    assert "--tls is refused: without a certificate trustme makes one" in ended.output
    assert "pip install trustme" in ended.output
