"""``Security``: what fits together is accepted, all else is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.errors import ConfigError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import SaslMechanism, Security, SecurityProtocol

PASSWORD: dict[str, Any] = {"mechanism": "PLAIN", "username": "alice", "password": "secret"}


def provider() -> Token:
    """A function that returns a token."""
    return Token("token", 1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"protocol": "plaintext"},
        {"protocol": SecurityProtocol.SSL, "ca": "ca.pem", "certificate": "c.pem", "key": "k.pem"},
        {"protocol": "SASL_PLAINTEXT", **PASSWORD},
        {"protocol": "sasl_ssl", **PASSWORD, "mechanism": "scram-sha-256", "ca": "folder"},
        {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "credentials": lambda: None},
        {"protocol": "SASL_SSL", "mechanism": SaslMechanism.OAUTHBEARER, "token": provider},
    ],
)
def test_settings_that_fit_together(settings: dict[str, Any]) -> None:
    """Names of protocols and mechanisms may be in any case."""
    made = Security(**settings)
    assert made.protocol.sasl == ("mechanism" in settings)
    assert made.protocol.tls == made.protocol.value.endswith("SSL")


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("protocol", {"protocol": "TLS"}),
        ("protocol", {"protocol": None}),
        ("ca", {"ca": "ca.pem"}),
        ("ca", {"protocol": "SSL", "ca": ""}),
        ("key", {"key": "key.pem"}),
        ("certificate", {"protocol": "SSL", "certificate": 5}),
        ("check_hostname", {"protocol": "SSL", "check_hostname": "no"}),
        ("mechanism", {"mechanism": "PLAIN"}),
        ("password", {"protocol": "SSL", "password": "secret"}),
        ("mechanism", {"protocol": "SASL_SSL"}),
        ("mechanism", {"protocol": "SASL_SSL", "mechanism": "GSSAPI"}),
        ("mechanism", {"protocol": "SASL_SSL", "mechanism": "MD5"}),
        ("username", {"protocol": "SASL_SSL", "mechanism": "PLAIN", "password": "x"}),
        ("password", {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "x"}),
        ("username", {"protocol": "SASL_SSL", **PASSWORD, "credentials": lambda: None}),
        ("token", {"protocol": "SASL_SSL", **PASSWORD, "token": provider}),
        ("token", {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}),
        ("username", {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "username": "alice"}),
        (
            "username",
            {"protocol": "SASL_SSL", **PASSWORD, "mechanism": "SCRAM-SHA-256", "username": "ä"},
        ),
    ],
)
def test_settings_that_do_not_fit(field: str, settings: dict[str, Any]) -> None:
    """The error names the setting that is missing, wrong, or without effect."""
    with pytest.raises(ConfigError) as caught:
        Security(**settings)
    assert caught.value.field == field


def test_credentials_that_were_given_as_such() -> None:
    """User name and password are one value for the logins."""
    made = Security(protocol="SASL_SSL", **PASSWORD)
    assert made.static_credentials == Credentials("alice", "secret")
    assert Security().static_credentials is None


@pytest.mark.parametrize("value", ["", "two words", "tokén", 5])
def test_a_token_is_one_word(value: object) -> None:
    """A token that would not fit into its message is refused."""
    with pytest.raises(ConfigError, match="value=<secret>"):
        Token(value, 1.0)
