"""The settings that are shipped to executors contain no secret."""

from __future__ import annotations

import ctypes
import pickle
import re
from pathlib import Path
from typing import Any, Final, cast

import pytest
from confluent_kafka import cimpl

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.settings import Security
from kgroup.spark.reader_settings import ReaderSettings, _is_secret
from kgroup.types import IsolationLevel

SECRET = "do-not-show"  # noqa: S105 # not a real one


def a_secret() -> str:
    """The target of a ``call:`` reference."""
    return SECRET


def a_token(config: str) -> tuple[str, float]:
    """The function that confluent-kafka would call for a token."""
    return config, 0.0


def test_a_group_s_config_says_where_and_how_to_read() -> None:
    """Brokers, isolation level, group, client id and rack are the member's."""
    config = GroupConfig(
        group_id="g",
        bootstrap_servers="a:1,b:2",
        topics=["t"],
        isolation_level="read_committed",
        client_id="c",
        rack_id="r",
    )
    settings = ReaderSettings.from_config(
        config, client={"fetch.min.bytes": 1}, no_progress_timeout=5
    )
    assert settings == ReaderSettings(
        bootstrap_servers=("a:1", "b:2"),
        isolation_level=IsolationLevel.READ_COMMITTED,
        group_id="g",
        client_id="c",
        client={"client.rack": "r", "fetch.min.bytes": 1},
        no_progress_timeout=5,
    )


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("no_progress", r"did you mean 'no_progress_timeout'\?"),
        ("bootstrap_servers", "are those of the group's settings"),
    ],
)
def test_a_field_that_is_not_the_readers_is_refused(field: str, reason: str) -> None:
    """A misspelt field, and one that the group's settings have, is refused with those there are."""
    config = GroupConfig(bootstrap_servers="a:1", group_id="group", topics=["topic"])
    with pytest.raises(ConfigError, match=rf"reader\['{field}'\].*batch_records.*{reason}"):
        ReaderSettings.from_config(config, **cast("Any", {field: "b:1"}))


def test_settings_travel_and_compare_by_value() -> None:
    """Unpickled settings find the pooled consumer of equal settings."""
    settings = ReaderSettings(
        bootstrap_servers="a:1",
        client={"fetch.min.bytes": 1, "broker.address.family": "v4"},
        secrets={"sasl.password": "env:P"},
    )
    copy = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own
    assert copy == settings
    assert hash(copy) == hash(settings)


def test_secrets_are_resolved_where_they_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each kind of reference has its value, a file's without its newline."""
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.setenv("KGROUP_TEST_SECRET", "from the environment")
    settings = ReaderSettings(
        bootstrap_servers="a:1",
        secrets={
            "sasl.password": "env:KGROUP_TEST_SECRET",
            "ssl.key.password": f"file:{tmp_path / 'key'}",
            "ssl.key.pem": f"call:{__name__}:a_secret",
            "oauth_cb": f"call:{__name__}:a_token",
        },
    )
    monkeypatch.setitem(__import__("sys").modules, __name__, _here())
    assert settings.resolve() == {
        "sasl.password": "from the environment",
        "ssl.key.password": "from a file",
        "ssl.key.pem": SECRET,
        "oauth_cb": a_token,
    }
    assert "from" not in repr(settings)
    assert SECRET.encode() not in pickle.dumps(settings)


def _here() -> Any:
    from types import ModuleType

    module = ModuleType(__name__)
    module.__dict__.update(a_secret=a_secret, a_token=a_token)
    return module


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("env:KGROUP_NO_SUCH", "the environment variable is not set"),
        ("file:/no/such", "No such file"),
        ("call:no_such:f", "ModuleNotFoundError"),
    ],
)
def test_a_reference_without_a_value_is_an_error(reference: str, reason: str) -> None:
    """The error names setting and reference, and says why without showing a value."""
    settings = ReaderSettings(bootstrap_servers="a:1", secrets={"sasl.password": reference})
    with pytest.raises(ConfigError, match=f"sasl.password.*{reference}.*{reason}"):
        settings.resolve()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"fetch.wait.mx.ms": 5},
            r"client\['fetch.wait.mx.ms'\]='...'.*No such configuration property",
        ),
        ({"fetch.wait.max.ms": "soon"}, r"client\['fetch.wait.max.ms'\]='...'.*Invalid value"),
        ({"fetch.wait.max.ms": -1}, r"client\['fetch.wait.max.ms'\]='...'.*outside allowed range"),
    ],
)
def test_what_librdkafka_does_not_accept_is_refused(settings: dict[str, Any], words: str) -> None:
    """A misspelt name or a wrong value is refused in the driver, before a task meets it."""
    with pytest.raises(ConfigError, match=words):
        ReaderSettings(bootstrap_servers="a:1", client={"fetch.min.bytes": 1, **settings})


def test_a_misspelt_secret_is_refused() -> None:
    """Its name is checked in the driver, although its value is known in executors only."""
    with pytest.raises(ConfigError, match=r"secrets\['sasl.pasword'\].*No such configuration"):
        ReaderSettings(bootstrap_servers="a:1", secrets={"sasl.pasword": "env:P"})


def test_a_file_of_the_executors_is_not_looked_for() -> None:
    """A setting that names a file or a library is accepted where only executors have that."""
    client = {"ssl.ca.location": "/only/there.pem", "plugin.library.paths": "only-there"}
    assert ReaderSettings(bootstrap_servers="a:1", client=client).client


def settings_of_librdkafka(folder: Path) -> set[str]:
    """The names of all settings that the installed librdkafka has."""
    library, c = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    opened = ctypes.c_void_p(c.fopen(str(folder / "settings").encode(), b"w"))
    library.rd_kafka_conf_properties_show(opened)
    c.fclose(opened)
    rows = (folder / "settings").read_text().splitlines()
    return {row.split("|")[0].strip() for row in rows if "|" in row}


PUBLIC: Final = {
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "https.ca.pem",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.location",
}
"""Settings that have the name of a secret, and are none."""
SECRETS: Final = {
    "oauth_cb",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
}


def test_the_secrets_are_those_of_librdkafka(tmp_path: Path) -> None:
    """Each setting of librdkafka with a secret's name is known, and refused if it is one."""
    suspicious = re.compile(r"pass|secret|cred|token|pem|jwt|oauth_cb|bearer.config|\bkey\b")
    found = {name for name in settings_of_librdkafka(tmp_path) if suspicious.search(name)}
    assert len(found) > 10
    assert found <= PUBLIC | SECRETS | {"oauthbearer_token_refresh_cb"}
    assert {name for name in found | SECRETS if _is_secret(name)} >= SECRETS
    assert not any(map(_is_secret, PUBLIC))


@pytest.mark.parametrize("name", [*sorted(SECRETS), "SASL.PASSWORD", "Sasl.Password"])
def test_a_secret_among_plain_settings_is_refused_unseen(name: str) -> None:
    """A secret that was given as a plain setting is refused, and not shown."""
    with pytest.raises(ConfigError, match="secrets") as raised:
        ReaderSettings(bootstrap_servers="a:1", client={name: SECRET})
    assert SECRET not in str(raised.value) + repr(raised.value.args)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.pasword", SECRET),
        ("ssl_key", SECRET),
        ("group.id", SECRET),
        ("fetch.wait.max.ms", SECRET),
        ("fetch.wait.max.ms", 777777777),
        ("security.protocol", SECRET),
        ("security.protocol", f'a" for {SECRET}'),
        ("debug", f"{SECRET},all"),
        ("client.rack", [SECRET]),
    ],
)
def test_no_error_shows_a_value(name: str, value: Any) -> None:
    """A secret may stand where it does not belong, so errors show names only."""
    with pytest.raises(ConfigError, match=name) as raised:
        ReaderSettings(bootstrap_servers="a:1", client={name: value})
    for secret in (SECRET, "777777777"):
        assert secret not in str(raised.value) + repr(raised.value)


def test_a_certificate_with_its_private_key_is_refused_unseen() -> None:
    """Its text would travel to the executors with the settings."""
    text = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
    with pytest.raises(ConfigError, match="give a reference to it in secrets") as caught:
        ReaderSettings(bootstrap_servers="a:1", client={"ssl.certificate.pem": text})
    assert SECRET not in str(caught.value)


def test_no_error_of_a_member_s_settings_shows_a_value() -> None:
    """Nor do the errors about the group's security, and about fields that are not the readers'."""
    config = GroupConfig(
        bootstrap_servers="a:1",
        group_id="group",
        topics=["topic"],
        security=Security(
            protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="u", password=SECRET
        ),
    )
    given: list[Any] = [
        {"client": {"sasl.password": SECRET}},
        {"sasl.password": SECRET},
    ]
    for fields in given:
        with pytest.raises(ConfigError) as raised:
            ReaderSettings.from_config(config, **fields)
        assert SECRET not in str(raised.value) + repr(raised.value)


def test_the_repr_shows_names_only() -> None:
    """A value of ``client`` is not in the repr, whatever its setting is."""
    assert "client=<client.rack>" in repr(
        ReaderSettings(bootstrap_servers="a:1", client={"client.rack": SECRET})
    )


def test_a_secret_in_place_of_its_reference_is_refused_unseen() -> None:
    """A text that is not a reference may be the secret itself, so the error does not show it."""
    with pytest.raises(ConfigError, match="env:NAME") as raised:
        ReaderSettings(bootstrap_servers="a:1", secrets={"sasl.password": SECRET})
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"client": {"auto.offset.reset": "earliest"}}, "auto.offset.reset"),
        ({"client": {"check.crcs": False}}, "check.crcs"),
        ({"client": {"logger": print}}, "logger"),
        ({"secrets": {"group.id": "env:X"}}, "group.id"),
        ({"secrets": {"oauth_cb": "env:X"}}, "oauth_cb"),
        ({"secrets": {"sasl.password": "call:module"}}, "sasl.password"),
        ({"no_progress_timeout": 0}, "no_progress_timeout"),
        ({"batch_records": 0}, "batch_records"),
        ({"batch_bytes": "1"}, "batch_bytes"),
        ({"max_buffered_bytes": True}, "max_buffered_bytes"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    """Settings that cannot work are refused when they are created."""
    with pytest.raises(ConfigError, match=named):
        ReaderSettings(**{"bootstrap_servers": "a:1", **fields})
