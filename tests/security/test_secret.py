"""Secrets are printed, logged and pickled nowhere."""

from __future__ import annotations

import copy
import pickle

import pytest

from kgroup.errors import ConfigError, UsageError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.secret import Secret, secret
from kgroup.security.settings import Security

WORD = "hunter2"


def test_only_reveal_returns_it() -> None:
    """Neither repr, str nor a format shows the text."""
    kept = Secret(WORD)
    assert kept.reveal() == WORD
    assert WORD not in f"{kept} {kept!r} {[kept]}"


def test_secrets_can_be_compared() -> None:
    """Equal texts are equal secrets with equal hashes; a text is not equal to its secret."""
    assert Secret(WORD) == Secret(WORD)
    assert hash(Secret(WORD)) == hash(Secret(WORD))
    assert Secret(WORD) != Secret("other")
    assert Secret(WORD) != WORD


def test_a_secret_is_not_pickled() -> None:
    """Whatever contains a secret cannot be pickled; a copy within the process is the same."""
    whole = Security(protocol="SASL_SSL", mechanism="PLAIN", username="a", password=WORD)
    with pytest.raises(UsageError, match="never pickled"):
        pickle.dumps(whole)
    assert copy.deepcopy(whole) == whole
    assert copy.copy(Secret(WORD)) == Secret(WORD)


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", 5, b"bytes", ["x"]])
def test_what_is_refused_is_not_shown_either(text: object) -> None:
    """A password of the wrong type or form does not appear in the error."""
    assert secret(None) is None
    assert not Secret(text).usable
    with pytest.raises(ConfigError, match="password=<secret> is refused"):
        Credentials("alice", text)


def test_reprs_show_no_secret() -> None:
    """The values that contain secrets can be printed."""
    shown = repr(
        [
            Credentials("alice", WORD),
            Token(WORD, 1.0),
            Security(
                protocol="SASL_SSL",
                certificate="c.pem",
                key=WORD,
                key_password=WORD,
                mechanism="PLAIN",
                username="alice",
                password=WORD,
            ),
        ]
    )
    assert WORD not in shown
    assert "alice" in shown
