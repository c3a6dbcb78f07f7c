"""Options that several commands share: the file of the connections' properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kgroup.cli import main
from kgroup.cli.options import security_of
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
        (SECURE + "sasl.password=hunter2\n", "username=None is refused"),
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
