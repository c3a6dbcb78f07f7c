"""The TLS context of an embedded broker: from files, or with a certificate made on the spot.

A certificate made on the spot is issued by an authority of its own, which lives as long as the
broker and which clients must be given; trustme makes it, from the extra ``kafka``.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.security.settings import ANONYMOUS, BrokerSecurity
from kgroup.errors import ConfigError

_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
"""The names that every certificate made on the spot has."""


@final
@attrs.frozen
class ServerTls:
    """What an embedded broker needs for TLS.

    Attributes:
        context: of its side.
        ca: the certificate of the authority, in PEM, for clients; None if files were given.
    """

    context: ssl.SSLContext
    ca: str | None


def server_tls(security: BrokerSecurity, hosts: Iterable[str]) -> ServerTls | None:
    """The TLS of a broker that clients reach under these names; None without TLS.

    Raises:
        ConfigError: a file cannot be read, or trustme is not installed.
    """
    if not security.protocol.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ca = None
    if security.certificate is None:
        ca = _make_certificate(context, hosts)
    else:
        _load(context, security.certificate, security.key)
    if security.client_ca is not None:
        try:
            context.load_verify_locations(cafile=security.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "client_ca", security.client_ca, f"no certificates can be read: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return ServerTls(context, ca)


def certified_user(certificate: Mapping[str, Any] | None) -> str:
    """The user that a client's certificate names by its CN, as ``getpeercert`` returns it."""
    for parts in (certificate or {}).get("subject", ()):
        for name, value in parts:
            if name == "commonName":
                return str(value)
    return ANONYMOUS


def _make_certificate(context: ssl.SSLContext, hosts: Iterable[str]) -> str:
    try:
        import trustme
    except ImportError as error:
        raise ConfigError(
            "tls",
            True,  # the value of the setting
            "without a certificate trustme makes one, which is not installed: pip install"
            " 'kgroup[kafka]' or pip install trustme, or give certificate and key",
        ) from error
    authority = trustme.CA()
    names = dict.fromkeys([*_ALWAYS, *(host for host in hosts if not _is_anywhere(host))])
    authority.issue_cert(*names).configure_cert(context)
    return authority.cert_pem.bytes().decode()


def _is_anywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _load(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    def no_password() -> str:
        # Without a function OpenSSL would ask at the terminal.
        return ""

    try:
        context.load_cert_chain(certificate, key, no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            "certificate",
            certificate,
            f"no certificate with a private key that is not encrypted can be read: {error}",
        ) from error
