"""Texts of librdkafka that mislead, and what is said instead."""

from __future__ import annotations

import struct
from typing import Final

import pytest

from kgroup.wire.librdkafka_texts import address_in, explained

OPENSSL: Final = "error:0A000086:SSL routines::"
HANDSHAKE: Final = "SASL SCRAM-SHA-256 mechanism handshake failed"
NOT_VALID: Final = "Broker: Request not valid in current SASL state"
SUPPORTED: Final = "broker's supported mechanisms:"
ALERT_48: Final = "tlsv1 alert unknown ca: SSL alert number 48"
ALERT_116: Final = "tlsv13 alert certificate required: SSL alert number 116"
UNTRUSTED: Final = (
    "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker"
    " certificate could not be verified, verify that ssl.ca.location is correctly configured or"
    " root CA certificates are installed (install ca-certificates package)"
)


def too_large(begins: bytes) -> str:
    """What librdkafka says if an answer begins so."""
    (size,) = struct.unpack(">i", begins)
    return (
        f"Receive failed: Invalid response size {size} (0..100000000): increase"
        " receive.message.max.bytes"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"ssl://b:1/bootstrap: {UNTRUSTED}", "it does not name this host"),
        (f"b:1/bootstrap: {too_large(b'HTTP')}", "The answer is HTTP"),
        (f"sasl_ssl://b:1/7: {too_large(b'SSH-')}", "The answer is SSH"),
        (f"b:1/bootstrap: {too_large(bytes((21, 3, 3, 0)))}", "The answer is a TLS record"),
        (f"b:1/bootstrap: {too_large(bytes(4))}", "a listener that expects TLS or a login"),
        (f"ssl://b:1/bootstrap: {too_large(bytes((255,) * 4))}", "set Security.certificate"),
        (
            f"ssl://b:1/bootstrap: SSL handshake failed: {OPENSSL}wrong version number",
            "it does not speak TLS on this port",
        ),
        (
            f"ssl://[::1]:9/bootstrap: Receive failed: {OPENSSL}{ALERT_116}",
            "it asks for a client certificate, and got none. Check Security.certificate",
        ),
        (
            f"ssl://b:1/1: SSL handshake failed: {OPENSSL}{ALERT_48}",
            "does not know the authority of the client certificate",
        ),
    ],
)
def test_a_text_that_misleads(text: str, expected: str) -> None:
    """The broker's name stays, librdkafka's advice does not."""
    said = explained(text)
    assert said.startswith(text[: text.index(": ")])
    assert expected in said
    for advice in ("ssl.ca.location", "receive.message.max.bytes", "SSL routines"):
        assert advice not in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused",
        # A broker that has answered before may send as much.
        f"b:1/7: {too_large(bytes((7, 0, 0, 0)))}",
        too_large(bytes((7, 0, 0, 0))),
        f"ssl://b:1/1: {OPENSSL}sslv3 alert no such thing: SSL alert number 4",
        "Invalid response size 99999999999 (0..1): increase receive.message.max.bytes",
    ],
)
def test_other_texts_stay(text: str) -> None:
    """What librdkafka says well, or what is not certainly wrong, is passed on."""
    assert explained(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SASL authentication error: Authentication failed: Invalid username or password.",
            "Invalid username or password; check user name and password",
        ),
        (
            'SASL authentication error: {"status":"invalid_token"}',
            "; check the token's issuer, audience, scope and lifetime",
        ),
        (
            f"{HANDSHAKE}: {NOT_VALID}: {SUPPORTED} ",
            f"{HANDSHAKE}: this port has no login; use protocol SSL, or another port",
        ),
        (
            f"{HANDSHAKE}: Broker: Unsupported SASL mechanism: {SUPPORTED} PLAIN,OAUTHBEARER",
            f"{HANDSHAKE}: the broker has these mechanisms: PLAIN,OAUTHBEARER; use one of them",
        ),
    ],
)
def test_a_login_that_is_refused(text: str, expected: str) -> None:
    """The text says what to do, as kgroup says it of its own connections."""
    said = explained(f"sasl_ssl://b:1/bootstrap: {text}")
    assert said.startswith("sasl_ssl://b:1/bootstrap: SASL ")
    assert said.endswith(expected)


@pytest.mark.parametrize("name", ["sasl_ssl://b:1/7", "GroupCoordinator", "GroupCoordinator: b:1"])
def test_a_login_too_soon_after_the_last_one(name: str) -> None:
    """Brokers refuse it as a port without logins does; the text leaves open which of them it is."""
    said = explained(f"{name}: {HANDSHAKE}: {NOT_VALID}: {SUPPORTED} ")
    assert said.startswith(f"{name}: {HANDSHAKE}: the client has logged in again too soon")
    assert "use protocol" not in said


def test_the_address_of_a_text() -> None:
    """It is that of the broker, with or without a protocol; other texts have none."""
    assert address_in(f"ssl://broker.example.com:9093/bootstrap: {UNTRUSTED}") == (
        "broker.example.com:9093"
    )
    assert address_in("[::1]:9092/3: Disconnected") == "[::1]:9092"
    assert address_in("Failed while waiting for controller: Local: Timed out") == ""
