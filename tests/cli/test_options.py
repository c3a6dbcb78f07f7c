"""Options that several commands share: the file of the connections' properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kgroup.cli import main
from kgroup.cli.options import cluster_of, security_of
from kgroup.security.settings import Security

SECURE = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
JAAS = 'sasl.jaas.config=PlainLoginModule required username="alice" password="first";\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A property file with a login."""
    path = tmp_path / "client.properties"
    path.write_text(SECURE + JAAS)
    return path


def test_secrets_from_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment takes precedence over the file; without a file there is no login."""
    made = security_of(file)
    assert made.password is not None
    assert (made.username, made.password.reveal()) == ("alice", "first")
    monkeypatch.setenv("KGROUP_PASSWORD", "second")
    made = security_of(file)
    assert made.password is not None
    assert (made.username, made.password.reveal()) == ("alice", "second")
    assert security_of(None) == Security()


@pytest.mark.parametrize("command", ["assign", "demo"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "does not exist"),
        ("sasl.passwrod=hunter2\n", "did you mean 'sasl.password'"),
        (SECURE + "sasl.password=hunter2\n", "sasl.username is missing: this login needs it"),
        (
            "security.protocol=SSL\nssl.ca.location=/nowhere.pem\n",
            "ssl.ca.location='/nowhere.pem' is refused: no certificates can be read: [Errno 2]",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n",
            "A command takes no function: it logs in with a client certificate, by SCRAM",
        ),
    ],
)
def test_a_wrong_file_is_a_usage_error(
    file: Path, command: str, text: str | None, expected: str
) -> None:
    """It is refused before any work, in one message without secrets."""
    file.unlink()
    if text is not None:
        file.write_text(text)
    result = CliRunner().invoke(main, [command, "--bootstrap-servers=h:1", f"--config={file}"])
    assert result.exit_code == 2
    assert expected in " ".join(result.output.split())
    assert "hunter2" not in result.output


@pytest.mark.parametrize("arguments", [["demo"], ["assign", "FILE"], ["assign"]])
def test_a_file_without_a_cluster_is_a_usage_error(file: Path, arguments: list[str]) -> None:
    """The properties are those of the connections to an existing cluster."""
    arguments = [str(file) if one == "FILE" else one for one in arguments]
    result = CliRunner().invoke(main, [*arguments, f"--config={file}"])
    assert result.exit_code == 2, result.output


def test_a_time_out_in_milliseconds_is_recognised() -> None:
    """The usage error says that the number would be allowed if it was meant in milliseconds."""
    arguments = ["groups", "list", "--bootstrap-servers=h:1", "--timeout=10000"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    said = " ".join(result.output.split())
    assert "durations are in seconds, not milliseconds: did you mean 10.0?" in said


REFUSED = ["groups", "lag", "--timeout", "1"]


def test_the_cluster_of_the_file(file: Path) -> None:
    """bootstrap.servers is used without the option, which takes precedence over it."""
    file.write_text("bootstrap.servers=127.0.0.1:1\n# a member's\nenable.auto.commit=true\n")
    assert cluster_of(None, file) == "127.0.0.1:1"
    assert cluster_of("127.0.0.1:2", file) == "127.0.0.1:2"
    assert cluster_of(None, None) is None
    result = CliRunner().invoke(main, [*REFUSED, f"--config={file}"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


@pytest.mark.parametrize("command", [REFUSED, ["assign", "--group", "g"], ["demo"]])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client.id=a\n", "bootstrap.servers"),
        ("bootstrap.servers=localhost\n", "bootstrap.servers='localhost' is refused"),
        ("bootstrap.servers=a:1\nmetadata.broker.list=b:1\n", "says otherwise; leave one out"),
    ],
)
def test_a_file_without_a_usable_cluster(
    file: Path, command: list[str], text: str, expected: str
) -> None:
    """It is a usage error that names the property, before any work."""
    file.write_text(text)
    result = CliRunner().invoke(main, [*command, f"--config={file}"])
    assert result.exit_code == 2, result.output
    assert expected in " ".join(result.output.split())


def test_a_jks_store_as_pem(file: Path, tmp_path: Path) -> None:
    """The error says what the file is, before librdkafka sees it."""
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={store}\nssl.truststore.type=PEM\n"
    )
    given = ["groups", "list", "--bootstrap-servers=h:1", f"--config={file}"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "ssl.truststore.location=" in said
    assert "no certificates can be read: it is a JKS store, and must be PEM" in said


def test_a_variable_that_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, because the file does not have the value."""
    file.write_text("security.protocol=PLAINTEXT\n")
    monkeypatch.setenv("KGROUP_PASSWORD", "hunter2")
    given = ["groups", "list", "--bootstrap-servers=h:1", f"--config={file}"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "the environment variable KGROUP_PASSWORD=<secret> is refused: protocol" in said
    assert "hunter2" not in said
