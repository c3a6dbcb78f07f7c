"""TLS on a byte stream, with one sentence for each failure.

A failure that another attempt cannot change (a certificate that is not trusted or not accepted) is
an ``AuthenticationError``; any other one means that the connection is lost. Under TLS 1.3 a broker
refuses a client's certificate only after the handshake: the first read fails then. Once a byte has
arrived, both sides have accepted each other. So whatever disturbs the stream later, such as a proxy
that ends a connection with a text of its own, says nothing about TLS or certificates.

Source: ``ssl`` and ``trio.SSLStream``; RFC 8446, section 6, for the alerts.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, final

import trio

from kgroup.errors import AuthenticationError, ConnectionLostError
from kgroup.wire.port_hints import NO_TLS

REFUSED_BY_BROKER: Final[Mapping[str, str]] = {
    "BAD_CERTIFICATE": "it asks for a client certificate, and got none that it knows",
    "CERTIFICATE_REQUIRED": "it asks for a client certificate, and got none",
    "CERTIFICATE_UNKNOWN": "its authorities do not know the client certificate, or it expired",
    "CERTIFICATE_EXPIRED": "the client certificate has expired",
    "CERTIFICATE_REVOKED": "the client certificate was revoked",
    "UNSUPPORTED_CERTIFICATE": "it does not accept this kind of client certificate",
    "UNKNOWN_CA": "it does not know the authority of the client certificate",
    "ACCESS_DENIED": "it denied access to the client certificate",
    "HANDSHAKE_FAILURE": "it asks for a client certificate, or has no cipher in common",
}
"""The alerts by which a broker refuses a client, as OpenSSL names them at the end of a reason."""
NO_TLS_HERE: Final = "does not speak TLS on this port; use another port, or a protocol without SSL"
_CHECK_HOST: Final = (
    "connect by a name that it has, or issue one with the names in bootstrap_servers and in the"
    " broker's advertised.listeners"
)
_CHECK_AUTHORITY: Final = "set Security.ca to the certificate of the authority that issued it"
_CHECK_TIME: Final = "renew it on the broker, and check the clock of this machine"
_REMEDIES: Final[Mapping[int, str]] = {
    2: _CHECK_AUTHORITY,
    9: _CHECK_TIME,
    10: _CHECK_TIME,
    18: _CHECK_AUTHORITY,
    19: _CHECK_AUTHORITY,
    20: _CHECK_AUTHORITY,
    21: _CHECK_AUTHORITY,
    62: _CHECK_HOST,
    64: _CHECK_HOST,
}
"""What to do if a broker's certificate is not accepted, by OpenSSL's X509_V_ERR_* codes."""
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})


@final
class TlsStream(trio.abc.Stream):
    """A stream inside TLS. Made by `open_tls`."""

    def __init__(self, stream: trio.SSLStream[trio.abc.Stream], broker: str) -> None:
        self._stream = stream
        self._broker = broker
        self._accepted = False
        """Whether a byte has arrived, so that neither side can refuse the other any more."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it; see ``trio.abc.SendStream``."""
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            self._raise_if_refused(error)
            raise

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream``."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive at least a byte, or nothing at the end; see ``trio.abc.ReceiveStream``."""
        try:
            received = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            self._raise_if_refused(error)
            raise
        self._accepted = self._accepted or bool(received)
        return received

    async def aclose(self) -> None:
        """Close it; see ``trio.abc.AsyncResource``."""
        await self._stream.aclose()

    def _raise_if_refused(self, error: trio.BrokenResourceError) -> None:
        if not self._accepted and isinstance(error.__cause__, ssl.SSLError):
            refusal = _refusal(error.__cause__, self._broker)
            if refusal is not None:
                raise refusal from error


def check_client_certificate(meaning: str) -> str:
    """One of ``REFUSED_BY_BROKER``, and what to do."""
    return f"{meaning}. Check Security.certificate and Security.key"


async def open_tls(
    stream: trio.abc.Stream, context: ssl.SSLContext, host: str, broker: str
) -> TlsStream:
    """Make the handshake of a client.

    Args:
        stream: an open connection.
        context: what the client trusts and shows.
        host: the name that the broker's certificate must have, or its IP address.
        broker: the broker's name in errors.

    Raises:
        AuthenticationError: one side does not accept the other's certificate.
        ConnectionLostError: the connection ended, or the other side does not speak TLS.

    Cancellation: the stream is closed.
    """
    try:
        secured = trio.SSLStream(
            stream, context, server_hostname=host.removesuffix("."), https_compatible=True
        )
        await secured.do_handshake()
    except ValueError as error:  # OpenSSL does not take the name, which a broker may advertise
        await trio.aclose_forcefully(stream)
        raise ConnectionLostError(f"no certificate can be for {host!r:.80}: {error}") from error
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError) and (refusal := _refusal(cause, broker)) is not None:
            raise refusal from error
        raise ConnectionLostError(_lost(cause, broker), hint=NO_TLS) from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return TlsStream(secured, broker)


def _refusal(error: ssl.SSLError, broker: str) -> AuthenticationError | None:
    """The error for a failure that another attempt cannot change."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(error.verify_code, "check it, and Security.ca")
        return AuthenticationError.in_tls(
            f"the certificate of {broker} was not accepted: {error.verify_message.rstrip('.')};"
            f" {remedy}"
        )
    for alert, meaning in REFUSED_BY_BROKER.items():
        if reason.endswith(f"ALERT_{alert}"):
            return AuthenticationError.in_tls(
                f"{broker} refused the TLS connection: {check_client_certificate(meaning)}"
            )
    if reason.endswith("ALERT_PROTOCOL_VERSION") or reason == "UNSUPPORTED_PROTOCOL":
        return AuthenticationError.in_tls(
            f"{broker} has no version of TLS that Security.minimum_version allows; allow TLSv1.2,"
            " or enable TLSv1.3 on the broker"
        )
    if reason in _NOT_TLS:
        return AuthenticationError.in_tls(f"{broker} {NO_TLS_HERE}")
    return None


def _lost(cause: BaseException | None, broker: str) -> str:
    if isinstance(cause, ssl.SSLEOFError) or cause is None:
        return f"{broker} closed the connection in the TLS handshake"
    return f"the TLS handshake with {broker} failed: {cause}"
