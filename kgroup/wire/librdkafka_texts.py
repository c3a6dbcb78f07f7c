"""librdkafka's texts: how to read one safely, and what those about connections mean.

A broker's own words may be quoted, and confluent-kafka raises if these are not UTF-8: ``text_of``
returns any text. librdkafka takes each certificate that is not accepted for one of an unknown
authority, and each answer of another program for a response that is too large. ``explained``
replaces such a part of a text by what kgroup says of its own connections in the same case; so it
adds to a login that was refused what to do about it. Where librdkafka does not know the reason, as
with certificates, ``address_in`` says where another connection finds it.

Source: librdkafka 2.16's ``rdkafka_sasl.c``, ``rdkafka_request.c``, ``rdkafka_ssl.c``
(``rd_kafka_transport_ssl_handshake``), ``rdkafka_transport.c``
(``rd_kafka_transport_framed_recv``) and ``rdkafka_broker.c``, which begins each text with the
broker's name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kgroup.security.settings import SecurityProtocol
from kgroup.wire.login_advice import CHECK_PASSWORD, CHECK_TOKEN, TOO_SOON, no_login, use_mechanism
from kgroup.wire.port_hints import unknown_port
from kgroup.wire.tls import NO_TLS_HERE, REFUSED_BY_BROKER, check_client_certificate

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_BROKER: Final = re.compile(
    r"(?:(?P<protocol>\w+)://)?(?P<address>\S+:[0-9]{1,5})/(?P<node>bootstrap|[0-9]+): "
)
_ABOUT_TOKEN: Final = re.compile(r"OAUTHBEARER|token|\{", re.IGNORECASE)
"""How brokers refuse a token: by a text, or in JSON (RFC 7628)."""
_SIZE: Final = struct.Struct(">i")
_BOOTSTRAP: Final = "bootstrap"
_COORDINATOR: Final = "GroupCoordinator: "
Broker = re.Match[str] | None
"""The broker at the beginning of a text, if there is one."""


def text_of(error: KafkaError) -> str:
    """The text of an error, with escapes where it is not UTF-8."""
    try:
        return error.str()
    except UnicodeDecodeError as invalid:
        return escaped(invalid)


def escaped(error: UnicodeDecodeError) -> str:
    """The text that could not be decoded, with escapes where it is not UTF-8."""
    return error.object.decode(errors="backslashreplace")


def explained(text: str) -> str:
    """A text in one line, with what is known better than librdkafka says it."""
    broker = _BROKER.match(text)
    for pattern, meaning in _MEANINGS:
        found = pattern.search(text)
        known = meaning(found, broker) if found else ""
        if found and known:
            return text[: found.start()] + known
    return text


def address_in(text: str) -> str:
    """The address of the broker that a text is about; empty if it names none."""
    broker = _BROKER.match(text)
    return broker["address"] if broker else ""


def _not_accepted(_: re.Match[str], __: Broker) -> str:
    return (
        "the broker's certificate was not accepted: its authority is not trusted, it does not name"
        " this host, or it is not valid today; librdkafka does not say which"
    )


def _no_response(found: re.Match[str], broker: Broker) -> str:
    """What sent the four bytes that librdkafka took for the size of a response.

    A broker that has answered before may have announced a large response, so that librdkafka's own
    text may be right; what another program would have begun with is larger still.
    """
    size = int(found["size"])
    if not -(2**31) <= size < 2**31:
        return ""
    protocol = _protocol(broker)
    begins, unknown = _SIZE.pack(size), unknown_port(protocol, b"")
    hint = unknown_port(protocol, begins)
    if hint == unknown and size > 0 and (broker is None or broker["node"] != _BOOTSTRAP):
        return ""
    return f"the answer is no response of a Kafka broker. {hint}"


def _no_tls(_: re.Match[str], __: Broker) -> str:
    return f"it {NO_TLS_HERE}"


def _refused(found: re.Match[str], _: Broker) -> str:
    meaning = REFUSED_BY_BROKER.get(found["alert"].upper().replace(" ", "_"), "")
    return meaning and f"the broker refused the TLS connection: {check_client_certificate(meaning)}"


def _no_login(found: re.Match[str], broker: Broker) -> str:
    # A broker that is named by its id, or as the coordinator, may be one that has logins.
    may_have_login = found.string.startswith(_COORDINATOR) or (
        broker is not None and broker["node"] != _BOOTSTRAP
    )
    meaning = TOO_SOON if may_have_login else no_login(_protocol(broker))
    return f"{found['begins']}: {meaning}"


def _other_mechanisms(found: re.Match[str], _: Broker) -> str:
    return f"{found['begins']}: {use_mechanism(found['enabled'].strip())}"


def _login_refused(found: re.Match[str], _: Broker) -> str:
    advice = CHECK_TOKEN if _ABOUT_TOKEN.search(found["reason"]) else CHECK_PASSWORD
    return f"{found[0].rstrip(' .')}; {advice}"


def _protocol(broker: Broker) -> SecurityProtocol:
    name = (broker and broker["protocol"]) or SecurityProtocol.PLAINTEXT.value
    try:
        return SecurityProtocol(name.upper())
    except ValueError:
        return SecurityProtocol.PLAINTEXT


_MEANINGS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Broker], str]], ...]] = (
    (
        re.compile(r"(SSL handshake failed: )?error:\w+:[^:]*:[^:]*:certificate verify failed.*"),
        _not_accepted,
    ),
    (
        re.compile(
            r"(Receive failed: )?Invalid response size (?P<size>-?[0-9]{1,10}) .*"
            r"receive\.message\.max\.bytes.*"
        ),
        _no_response,
    ),
    (
        re.compile(
            r"(SSL handshake failed: )?error:\w+:[^:]*:[^:]*:"
            r"(wrong version number|unknown protocol|http request|packet length too long).*"
        ),
        _no_tls,
    ),
    (
        re.compile(r"(\w[\w ]+: )?error:\w+:[^:]*:[^:]*:\w+ alert (?P<alert>[a-z ]+).*"),
        _refused,
    ),
    (
        re.compile(
            r"(?P<begins>SASL [\w-]+ mechanism handshake failed): Broker: Request not valid in"
            r" current SASL state.*"
        ),
        _no_login,
    ),
    (
        re.compile(
            r"(?P<begins>SASL [\w-]+ mechanism handshake failed): Broker: Unsupported SASL"
            r" mechanism: broker's supported mechanisms:(?P<enabled>.*)"
        ),
        _other_mechanisms,
    ),
    (
        re.compile(r"SASL authentication error: (?P<reason>.*)"),
        _login_refused,
    ),
)
"""Parts of texts that mislead, and the function that says what is meant; "" keeps the text."""
