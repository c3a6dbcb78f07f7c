"""``Token``: what could break the message of a login is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.errors import ConfigError
from kgroup.security.credentials import Token
from kgroup.security.oauthbearer import OauthBearerLogin


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("value", {"value": ""}),
        ("value", {"value": "a b"}),
        ("value", {"value": "a\x01b"}),
        ("value", {"value": "a\r\nb"}),
        ("value", {"value": "\N{LATIN SMALL LETTER A WITH DIAERESIS}"}),
        ("value", {"value": None}),
        ("expires_at", {"expires_at": float("inf")}),
        ("principal", {"principal": None}),
        ("principal", {"principal": "a\0b"}),
        ("extensions", {"extensions": {"auth": "x"}}),
        ("extensions", {"extensions": {"a1": "x"}}),
        ("extensions", {"extensions": {"": "x"}}),
        ("extensions", {"extensions": {"a": ""}}),
        ("extensions", {"extensions": {"a": "x\x01y"}}),
        ("extensions", {"extensions": {"a": 5}}),
        ("extensions", {"extensions": ["a"]}),
    ],
)
def test_what_is_refused(field: str, settings: dict[str, Any]) -> None:
    """Each by its name."""
    usual: dict[str, Any] = {"value": "token", "expires_at": 5.0}
    with pytest.raises(ConfigError, match=field):
        Token(**{**usual, **settings})


def test_the_message_of_a_login() -> None:
    """The token and its extensions, as RFC 7628 has them."""
    login = OauthBearerLogin(Token("t.k~+/=", 5.0, extensions={"traceId": "12 3", "a": "b"}))
    assert login.first() == b"n,,\x01auth=Bearer t.k~+/=\x01a=b\x01traceId=12 3\x01\x01"
