"""A walk over what is printed, logged, raised or pickled: no secret is in any of it."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import confluent_kafka
import pytest

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError, KgroupError
from kgroup.records.librdkafka_settings import consumer_settings
from kgroup.security.credentials import Credentials, Token
from kgroup.security.jaas import parse_jaas
from kgroup.security.oidc import OidcClientCredentials
from kgroup.security.properties import Properties
from kgroup.security.settings import Security
from kgroup.spark.reader_settings import ReaderSettings
from tests.security.frames import frames

WORD: Final = "hunter2"
KEY: Final = f"-----BEGIN PRIVATE KEY-----\n{WORD}\n-----END PRIVATE KEY-----"
BOTH: Final = f"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n{KEY}"
LOGIN: Final = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
JAAS: Final = f'a.PlainLoginModule required username="alice" password="{WORD}";'
TOKENS: Final = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f'a.OAuthBearerLoginModule required clientId="a" clientSecret="{WORD}";',
    "sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
}
PROPERTIES: Final = {
    **LOGIN,
    "bootstrap.servers": "localhost:1",
    "group.id": "g",
    "sasl.jaas.config": JAAS,
    "ssl.certificate.location": "client.pem",
    "ssl.key.pem": KEY,
    "ssl.key.password": WORD,
}


def config() -> GroupConfig:
    """A group with a secret wherever there can be one."""
    return GroupConfig.from_properties(PROPERTIES, topics=["t"])


def token() -> Security:
    """A login by a token."""
    return Security(
        protocol="SASL_SSL", mechanism="OAUTHBEARER", token=lambda: Token(WORD, 1.0, "alice")
    )


VALUES: Final[tuple[Callable[[], object], ...]] = (
    config,
    token,
    lambda: config().security,
    lambda: Credentials("alice", WORD),
    lambda: Token(WORD, 1.0),
    lambda: Properties(PROPERTIES),
    lambda: Security.from_properties({**LOGIN, **TOKENS}),
    lambda: Security.from_properties({**LOGIN, **TOKENS}).token,
    lambda: parse_jaas(JAAS),
    lambda: Security(protocol="SSL", certificate=BOTH),
    lambda: Security(protocol="SSL", ca=BOTH),
    lambda: Security.from_properties({"security.protocol": "SSL", "ssl.certificate.pem": BOTH}),
    lambda: Security.from_properties({"security.protocol": "SSL", "ssl.ca.pem": BOTH}),
)


@pytest.mark.parametrize("make", VALUES)
def test_no_value_shows_a_secret(make: Callable[[], object]) -> None:
    """Neither its repr, its text, its fields as JSON, nor a pickle."""
    value = make()
    texts = [repr(value), str(value), f"{value}"]
    if attrs.has(type(value)) and not isinstance(value, type(parse_jaas(JAAS))):
        texts.append(json.dumps(attrs.asdict(value), default=repr))  # type: ignore[arg-type]
        try:
            texts.append(repr(pickle.dumps(value)))
        except (KgroupError, pickle.PicklingError, AttributeError) as error:
            texts.append(str(error))
    assert [text for text in texts if WORD in text] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.mechanism": "SCRAM-SHA-256"},
        {"security.protocol": "PLAINTEXT"},
        {"sasl.jaas.config": JAAS.rstrip(";")},
        {"sasl.jaas.config": f"{JAAS} {JAAS}"},
        {"sasl.jaas.config": f'a.B required x="{WORD}";'},
        {"sasl.password": f"not-{WORD}"},
        {"sasl.username": "bob"},
        {"sasl.password": f"{WORD}${{env:KGROUP_NOT_SET}}"},
        {"ssl.key.pasword": WORD},
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://example.com"},
        {**TOKENS, "sasl.oauthbearer.client.secret": f"not-{WORD}"},
        {**TOKENS, "sasl.jaas.config": f'OAuthBearerLoginModule required secret="{WORD}";'},
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": None},
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": f"https://a:{WORD}@localhost/token"},
        {"security.protocol": "PLAINTEXT", "ssl.certificate.location": BOTH},
        {"ssl.keystore.location": BOTH},
        {"ssl.certificate.location": BOTH, "ssl.ca.pem": BOTH, "sasl.jaas.config": "x"},
        {"ssl.key.password": [WORD]},
        {"session.timeout.ms": "x"},
        {"session.timeout.ms": "0"},
    ],
)
@pytest.mark.parametrize("as_file", [False, True])
def test_no_refusal_shows_a_secret(
    wrong: dict[str, Any], as_file: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error, its causes and the local variables of kgroup's functions do not."""
    caplog.set_level(logging.DEBUG)
    properties: Any = {**PROPERTIES, **wrong}
    if as_file:
        if isinstance(properties["ssl.key.password"], list):
            properties["ssl.key.password"] = "\0"
        file = tmp_path / "client.properties"
        given = {name: value for name, value in properties.items() if value is not None}
        lines = (f"{name}={str(value).replace(chr(10), '')}" for name, value in given.items())
        file.write_text("\n".join(lines))
        properties = file
    with pytest.raises(ConfigError) as caught:
        GroupConfig.from_properties(properties, topics=["t"])
    found = [text for text in (*frames(caught.value), caplog.text) if WORD in text]
    if not as_file:
        # A mapping is the program's own, which it gave to the function.
        found = [text for text in found if not text.startswith("source=")]
    assert found == []


@pytest.mark.parametrize(
    "make",
    [
        lambda word: Security(protocol="SSL", mechanism="PLAIN", username="a", password=word),
        lambda word: Security(protocol="SASL_SSL", mechanism="GSSAPI", key=word, key_password=word),
        lambda word: Security(protocol="SSL", password=word, passwort=word),  # type: ignore[call-arg]
        lambda word: Security(protocol="SSL", passwort=word),  # type: ignore[call-arg]
        lambda word: Security.from_properties({}, sasl_plain_password=word),
        lambda word: GroupConfig(group_id="g", sasl_plain_password=word),  # type: ignore[call-arg]
        lambda word: Security(protocol="SASL_SSL", mechanism="OAUTHBEARER", token=word),
        lambda word: Security(
            protocol="SASL_SSL",
            mechanism="PLAIN",
            credentials=("alice", word),  # type: ignore[arg-type]
        ),
        lambda word: Credentials("", word),
        lambda word: Credentials(username="", password=word),
        lambda word: Token(word, -1.0),
        lambda word: Token(f"{word} ", 1.0),
        lambda _: Security(protocol="PLAINTEXT", certificate=BOTH, ca=BOTH),
        lambda word: OidcClientCredentials(
            token_endpoint=f"https://a:{word}@localhost", client_id="a", client_secret=word
        ),
    ],
)
def test_no_refused_value_shows_a_secret(make: Callable[[str], object]) -> None:
    """Also the local variables of ``__init__`` do not show what the program gave directly."""
    with pytest.raises(ConfigError) as caught:
        make(WORD)
    assert [text for text in frames(caught.value) if WORD in text] == []


def test_executors_are_sent_no_secret() -> None:
    """A group with a login gives executors references only, or is refused."""
    with pytest.raises(ConfigError, match="executors are sent no secret") as caught:
        ReaderSettings.from_config(config())
    assert WORD not in str(caught.value)
    settings = ReaderSettings.from_config(
        config(),
        client={"security.protocol": "SASL_SSL"},
        secrets={"sasl.password": "env:KAFKA_PASSWORD"},
    )
    assert WORD not in repr(pickle.dumps(settings))


@pytest.mark.parametrize("wrong", [{"ssl.ca.location": "/nowhere"}, {"no.such.property": "x"}])
def test_librdkafka_shows_no_secret(wrong: dict[str, str]) -> None:
    """Neither the exception of a Consumer that refuses its settings, nor its debug log."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.Logger("librdkafka")  # noqa: LOG001 # no other test's
    logger.addHandler(Lines())
    made = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password=WORD)
    settings = consumer_settings(attrs.evolve(config(), security=made))
    debugged: dict[str, Any] = {**settings, "debug": "security,conf,broker", "logger": logger}
    consumer = confluent_kafka.Consumer(debugged)
    consumer.poll(0.05)
    consumer.close()
    assert lines
    refused: dict[str, Any] = {**consumer_settings(config()), **wrong, "logger": logger}
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        confluent_kafka.Consumer(refused)
    shown = [str(caught.value), repr(caught.value.args), *lines]
    assert [text for text in shown if WORD in text] == []


def test_only_places_can_be_the_url_of_a_user() -> None:
    """Names of users and scopes may look like one, and are neither hidden nor refused."""
    name = "spiffe://orders@example.org"
    assert Credentials(name, WORD).username == name
    assert Token(WORD, 1.0, name).principal == name
    login = Security(protocol="SASL_SSL", mechanism="PLAIN", username=name, password=WORD)
    assert login.username == name
    place = "https://localhost/token"
    client = OidcClientCredentials(
        token_endpoint=place, client_id=name, client_secret=WORD, scope=name
    )
    assert (client.client_id, client.scope) == (name, name)
