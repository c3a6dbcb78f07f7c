"""Broker addresses: checks of hosts and ports, and ``host:port`` to read and to write.

Settings, command lines and responses of brokers all use these checks. A host that passes is safe to
resolve: for a name such as ``a..b``, Python's resolver raises `UnicodeError`, which no caller of a
socket function expects. Whether the host exists is not checked.

A name beyond ASCII is encoded by trio as IDNA 2008 says, and by Python's resolver and its TLS as
IDNA 2003 does. These allow other characters, and encode some in another way.

Source: RFC 1035 (labels of at most 63 octets, names of at most 253), RFC 3986 (``[::1]:9092``),
RFC 3490 and 5891 (IDNA).
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

import idna

HIGHEST_PORT: Final = 65535
LONGEST_HOST: Final = 253
"""The most characters of a host's name, as the resolver sees it."""
LONGEST_LABEL: Final = 63
"""The most characters between two dots of a host's name, as the resolver sees it."""
_ASCII_HOST: Final = re.compile(r"[a-zA-Z0-9._-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,5}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*://")


def host_fault(host: object) -> str | None:
    """Why a text is neither a host's name nor an IP address, or None if it is one.

    Underscores are allowed, because container names have them and resolvers accept them.
    """
    if not isinstance(host, str):
        return f"is a {type(host).__name__}, not a str"
    if not host:
        return "is empty"
    if ":" in host:
        return None if _is_ipv6(host) else "is no IPv6 address"
    return _name_fault(host) if host.isascii() else _international_fault(host)


def port_fault(port: object, *, least: int = 1) -> str | None:
    """Why a number is no port, or None if it is one.

    Args:
        port: the number.
        least: 1 for a port to connect to; 0 for a port to listen on, where 0 means any free port.
    """
    if not isinstance(port, int) or isinstance(port, bool):
        return f"is a {type(port).__name__}, not an int"
    return None if least <= port <= HIGHEST_PORT else f"is not {least} to {HIGHEST_PORT}"


def split_address(address: object, *, least_port: int = 1) -> tuple[str, int]:
    """Parse ``host:port``; an IPv6 address must be in brackets, as in ``[::1]:9092``.

    Args:
        address: the text.
        least_port: the ``least`` of `port_fault`.

    Raises:
        ValueError: it is no such address; the message says why.
    """
    if not isinstance(address, str):
        raise ValueError(f"it is a {type(address).__name__}, not a str 'host:port'")
    host, colon, digits = address.rpartition(":")
    if not colon or not _DIGITS.fullmatch(digits):
        raise ValueError("it does not end in ':' and a port number")
    if (scheme := _SCHEME.match(host)) is not None:
        raise ValueError(
            f"it is no URL: leave out {scheme[0]!r}, and set security.protocol for TLS or a login"
        )
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if bracketed != (":" in host):
        raise ValueError("an IPv6 address, and no other host, must be in brackets: '[::1]:9092'")
    if fault := host_fault(host):
        raise ValueError(f"its host {fault}")
    if fault := port_fault(int(digits), least=least_port):
        raise ValueError(f"its port {fault}")
    return host, int(digits)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets, as `split_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _international_fault(host: str) -> str | None:
    if len(host) > LONGEST_HOST:
        return f"has {len(host)} characters, more than {LONGEST_HOST}"
    try:
        names = {host.encode("idna").lower(), idna.encode(host, uts46=True)}
    except UnicodeError:  # also for lone surrogates
        return "cannot be encoded as a host's name (IDNA)"
    if len(names) > 1:
        forms = " and ".join(sorted(name.decode("ascii") for name in names))
        return f"has two encoded forms, {forms}: use the one that is meant"
    return _name_fault(names.pop().decode("ascii"))


def _name_fault(name: str) -> str | None:
    if not _ASCII_HOST.fullmatch(name):
        return "has a character that no host's name has"
    name = name.removesuffix(".")
    if len(name) > LONGEST_HOST:
        return f"has {len(name)} characters, more than {LONGEST_HOST}"
    labels = name.split(".")
    longest = max(map(len, labels))
    if longest > LONGEST_LABEL:
        return f"has a label of {longest} characters, more than {LONGEST_LABEL}"
    return None if all(labels) else "has an empty label"


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True
