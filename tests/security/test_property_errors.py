"""Errors about settings that a property file gave: they name the file and the property."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.settings import Security

KAFKA: Final = "bootstrap.servers=localhost:9092\ngroup.id=orders\n"
LOGIN: Final = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"


def refusal(file: Path, text: str) -> ConfigError:
    """The error about a file, which does not show its password."""
    file.write_text(KAFKA + text)
    with pytest.raises(ConfigError) as caught:
        GroupConfig.from_properties(file, topics=["t"])
    assert "hunter2" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOGIN, r"sasl.jaas.config is missing: this login needs it: MODULE required username="),
        (LOGIN + "ssl.ca.location=a.pem\n", "sasl.username is missing: this login needs it"),
        (LOGIN + "sasl.username=alice\n", "sasl.password is missing: this login needs it$"),
        (
            LOGIN + "sasl.jaas.config=PlainLoginModule required username=alice;\n",
            "sasl.jaas.config=<secret> is refused: it has no password; it must be MODULE",
        ),
        ("security.protocol=SASL_SSL\n", "sasl.mechanism is missing: .* must be one of PLAIN"),
        ("ssl.ca.location=a.pem\n", "ssl.ca.location='a.pem' is refused: .*set security.protocol,"),
        (
            "ssl.truststore.location=a.pem\nssl.truststore.type=PEM\n",
            "ssl.truststore.location='a.pem' is refused: protocol PLAINTEXT has no TLS",
        ),
        ("ssl.key.password=hunter2\n", "ssl.key.password=<secret> is refused"),
        ("sasl.mechanisms=PLAIN\n", "sasl.mechanisms=.* is refused: protocol PLAINTEXT has no"),
        ("security.protocol=SASL-SSL\n", "security.protocol='SASL-SSL' is refused: it must be one"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n",
            "sasl.oauthbearer.token.endpoint.url is missing: tokens are requested with it",
        ),
        (
            "session.timeout.ms=2000\n",
            r"heartbeat.interval.ms=1000 \(1 s, the default\) .* session.timeout.ms \(2 s\)",
        ),
        (
            "session.timeout.ms=30000000000\n",
            r"session.timeout.ms=30000000000 \(30000000 s\) is refused: (?!.*did you mean)",
        ),
        ("group.instance.id=\n", "group.instance.id='' is refused"),
        ("sesion.timeout.ms=1\n", "sesion.timeout.ms=.* remove it, .* mean 'session.timeout.ms'"),
        ("session.timeout.ms=x\n", "session.timeout.ms='x' is refused: it must be a whole number"),
        (
            "partition.assignment.strategy=com.example.MyAssignor\n",
            "'com.example.MyAssignor' is no assignor of Kafka",
        ),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """The error has the name that the file uses, or that the same client would use."""
    file = tmp_path / "client.properties"
    error = refusal(file, text)
    assert error.source == str(file)
    assert re.search(expected, str(error))
    assert str(error).startswith(f"{file}: {error.field}")


def test_a_mapping_that_is_refused() -> None:
    """There is no file to name."""
    with pytest.raises(ConfigError, match=r"^sasl.jaas.config=None is refused: this login"):
        Security.from_properties({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})


def test_what_the_program_gives(tmp_path: Path) -> None:
    """An error about it names the argument, and no file."""
    file = tmp_path / "client.properties"
    file.write_text(KAFKA)
    with pytest.raises(ConfigError, match=r"^heartbeat_interval=50 is refused"):
        GroupConfig.from_properties(file, topics=["t"], heartbeat_interval=50)
    with pytest.raises(ConfigError, match=r"^topics=None is refused: no property has it"):
        GroupConfig.from_properties(file)
    with pytest.raises(ConfigError, match=r"^ca='a.pem' is refused"):
        Security.from_properties(file, ca="a.pem")


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "a JKS store"),
        (b"\x30\x82\x0a\x46", "a PKCS#12 store"),
        (b"-----BEGIN CERTIFICATE-----\nMII=\n", "a file in PEM"),
        (b"Bag Attributes\n    friendlyName: a\n", "a file in PEM"),
    ],
)
def test_a_file_of_certificates(tmp_path: Path, data: bytes, form: str) -> None:
    """It is no property file, and the error says what it is."""
    file = tmp_path / "client.properties"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=f"it is {form}.* and no property file"):
        Security.from_properties(file)
