"""SCRAM: the messages of RFC 7677, and a broker that is not the one it claims to be."""

from __future__ import annotations

import base64

import pytest

from kgroup.security.credentials import Credentials
from kgroup.security.mechanism import LoginRefusedError
from kgroup.security.scram import ScramLogin
from kgroup.security.settings import SaslMechanism

# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def login(username: str = "user", nonce: str | None = NONCE) -> ScramLogin:
    """A login with the password of the RFC."""
    return ScramLogin(SaslMechanism.SCRAM_SHA_256, Credentials(username, "pencil"), nonce)


def test_the_exchange_of_the_rfc() -> None:
    """Every message is that of the RFC, and the login is done after the last one."""
    mine = login()
    assert mine.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mine.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not mine.done
    assert mine.answer(SERVER_FINAL) is None
    assert mine.done


def test_user_names_are_escaped() -> None:
    """A comma and an equals sign in a name cannot be taken for the message's own."""
    assert login("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


def test_every_login_has_its_own_nonce() -> None:
    """An answer that was recorded cannot be played again."""
    assert login(nonce=None).first() != login(nonce=None).first()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=x",
        b"\xff",
        SERVER_FIRST.replace(b"rOpr", b"rOpX"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", b"1000001"),
        SERVER_FIRST.replace(b"4096", b"many"),
        SERVER_FIRST.replace(b"W22Z", b"!!!!"),
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    """The client sends no proof in answer to a message that is wrong or asks too much."""
    with pytest.raises(LoginRefusedError):
        login().answer(message)


@pytest.mark.parametrize(
    "message",
    [b"", b"v=!", b"e=other-error", b"v=" + base64.b64encode(b"x" * 32), b"\xff"],
)
def test_last_messages_that_are_refused(message: bytes) -> None:
    """A broker that does not prove that it knows the password is not believed."""
    mine = login()
    mine.answer(SERVER_FIRST)
    with pytest.raises(LoginRefusedError):
        mine.answer(message)
    assert not mine.done
