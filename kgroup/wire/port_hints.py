"""What may be wrong with a port that does not answer as a Kafka broker does.

A port of another listener, or of another program, closes the connection, sends bytes that are no
response, or stays silent. The same happens while a broker starts or stops, so such failures are
retried, and their errors carry a hint: the text of one of these functions. Nothing is sent to find
out more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kgroup.security.settings import SecurityProtocol

_TLS: Final = (
    "The answer is a TLS record: the port expects TLS; use protocol SSL or SASL_SSL, or the port of"
    " a listener without TLS"
)
_OTHER_PROGRAMS: Final = (
    (re.compile(rb"[\x15\x16]\x03"), _TLS),
    (
        re.compile(rb"HTTP"),
        "The answer is HTTP: the port belongs to a web server; use the port of a Kafka listener",
    ),
    (
        re.compile(rb"SSH-"),
        "The answer is SSH: the port belongs to an SSH server; use the port of a Kafka listener",
    ),
)
"""How the answers of some other programs begin, and what follows from them."""

_UNKNOWN_PORT: Final[Mapping[SecurityProtocol, str]] = {
    SecurityProtocol.PLAINTEXT: (
        "If this repeats, the broker may hang, or the port may belong to a listener that expects"
        " TLS or a login, or to another program than Kafka: use protocol SSL, SASL_SSL or"
        " SASL_PLAINTEXT, or another port"
    ),
    SecurityProtocol.SASL_PLAINTEXT: (
        "If this repeats, the broker may hang, or the port may belong to a listener that expects"
        " TLS, or to another program than Kafka: use protocol SASL_SSL, or another port"
    ),
    **dict.fromkeys(
        (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL),
        "The port speaks TLS; if this repeats, the broker may hang, or the port may expect a client"
        " certificate, or belong to another program than Kafka: set Security.certificate,"
        " or use another port",
    ),
}
"""For a connection on which nothing was answered; with TLS, the handshake has succeeded."""

_LOGIN_EXPECTED: Final[Mapping[SecurityProtocol, str]] = {
    SecurityProtocol.PLAINTEXT: (
        "If this repeats, the port may belong to a listener that asks for a login: use protocol"
        " SASL_PLAINTEXT, or another port"
    ),
    SecurityProtocol.SSL: (
        "If this repeats, the port may belong to a listener that asks for a login: use protocol"
        " SASL_SSL, or another port"
    ),
}

NO_TLS: Final = (
    "It may be starting or stopping; if this repeats, the port does not speak TLS: use the port of"
    " a listener with TLS, or a protocol without SSL"
)
"""For a connection that ended, or stayed silent, in the TLS handshake."""


def unknown_port(protocol: SecurityProtocol, begins: bytes) -> str:
    """The hint for a connection that failed before its first valid response.

    Args:
        protocol: the client's.
        begins: the first bytes that were sent instead of a response; a few are enough.
    """
    for beginning, meaning in _OTHER_PROGRAMS:
        if beginning.match(begins):
            return meaning
    return _UNKNOWN_PORT[protocol]


def login_expected(protocol: SecurityProtocol) -> str:
    """The hint for a broker that responded to ApiVersions and closed at the next request.

    Brokers answer ApiVersions on any listener, and close the connection if anything but a login
    follows where one is expected. It is empty for a client that logs in.
    """
    return _LOGIN_EXPECTED.get(protocol, "")
