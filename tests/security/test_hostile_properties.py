"""No text in a property raises anything but a ConfigError."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kgroup.cli import main
from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.property_table import BY_NAME, PropertyKind
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context

PEM: Final = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
TEXTS: Final = (
    "",
    " \t",
    "\0",
    "a\0b",
    "é",
    "\ud800",
    "a" * 100_000,
    "9" * 5000,
    "1e999",
    "-1",
    "nan",
    "/",
    ".",
    "..",
    "nowhere.jks",
    "https://[",
    "https://é:99999999/",
    "[::1",
    "=,=",
    "${env:",
    "${env:}",
    "${env:a=b}",
    "${env:\0}",
    "${env:\ud800}",
    "${file:/nowhere:x}",
    "${file:\0:x}",
    "${file:\ud800:x}",
    "${file:/:x}",
    "${directory:/:\0}",
    PEM.format(""),
    PEM.format("é"),
    PEM.format("\ud800"),
    PEM.format("\0"),
    PEM.format(base64.b64encode(b"none").decode()),
)
KAFKA: Final = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}
OAUTH: Final = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
    "sasl.oauthbearer.client.id": "kgroup",
    "sasl.oauthbearer.client.secret": "hunter2",
}
#: What else is given, so that a property has a meaning.
OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "alone": {},
    "with TLS": {"security.protocol": "SSL"},
    "with a store": {"security.protocol": "SSL", "ssl.truststore.type": "PEM"},
    "with a key store": {"security.protocol": "SSL", "ssl.keystore.type": "PEM"},
    "with a certificate": {"security.protocol": "SSL", "ssl.certificate.pem": PEM.format("")},
    "with a password": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
    },
    "with tokens": {"security.protocol": "SASL_SSL", **OAUTH},
}


def build(properties: Mapping[str, str]) -> None:
    """Make the settings of both planes, and the context; only a ConfigError may be raised."""
    with contextlib.suppress(ConfigError):
        GroupConfig.from_properties({**KAFKA, **properties}, topics=["t"])
    with contextlib.suppress(ConfigError):
        security = Security.from_properties(properties)
        librdkafka_settings(security)
        client_context(security)


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's authorities are many, and reading them takes most of the time."""
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        pytest.param(name, others, id=f"{name} {words}")
        for name, row in BY_NAME.items()
        for words, others in OTHERS.items()
        if words == "alone" or (row.field is not None and row.part is not PropertyKind.GROUP)
    ],
)
def test_any_text_of_any_property_is_a_value_or_an_error(
    name: str, others: Mapping[str, str]
) -> None:
    """Whatever the text, settings and context are made, or a ConfigError says why not."""
    for text in TEXTS:
        build({**others, name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.truststore.location", ""),
        ("ssl.keystore.location", "/"),
        ("ssl.ca.location", "\ud800"),
        ("ssl.truststore.certificates", PEM.format("é")),
        ("ssl.ca.pem", PEM.format("é")),
        ("ssl.certificate.pem", PEM.format("\ud800")),
        ("ssl.key.pem", PEM.format("é")),
    ],
)
def test_the_error_names_the_property(name: str, text: str) -> None:
    """A path that no file has, and PEM that is not ASCII, are refused by the property's name."""
    with pytest.raises(ConfigError, match=f"^{name}=") as caught:
        Security.from_properties({"security.protocol": "SSL", name: text})
    assert caught.value.field == name


def test_a_command_says_so_too(tmp_path: Path) -> None:
    """The command ends as with other wrong options, and not in a traceback."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=\n", encoding="utf-8")
    options = ["--bootstrap-servers", "localhost:9092", "--config", str(file)]
    result = CliRunner().invoke(main, ["groups", "list", *options])
    assert result.exit_code == 2
    assert "ssl.truststore.location='' is refused" in result.output
