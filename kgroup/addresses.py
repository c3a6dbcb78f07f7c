"""Addresses of brokers: what a host and a port may be, and ``host:port`` taken apart.

One rule for the settings, the command line and what brokers say. A host that passes can be handed
to the resolver: Python's own encodes names by IDNA and raises `UnicodeError`, which no caller of a
socket function expects, for a name such as ``a..b``. Whether the name exists is not asked here.

Source: RFC 1035 (labels of at most 63 octets, names of at most 253), RFC 3986 (``[::1]:9092``).
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

HIGHEST_PORT: Final = 65535
LONGEST_HOST: Final = 253
"""The most characters of a host's name, as the resolver sees it."""
LONGEST_LABEL: Final = 63
"""The most characters between two dots of a host's name, as the resolver sees it."""
_ASCII_HOST: Final = re.compile(r"[a-zA-Z0-9._-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,5}")


def host_fault(host: object) -> str | None:
    """What keeps a host from being a name or an IP address, in words; None where nothing does.

    An underscore is let through: container names have them, and resolvers find those.
    """
    if not isinstance(host, str):
        return f"is a {type(host).__name__}, not a str"
    if not host:
        return "is empty"
    if ":" in host:
        return None if _is_ipv6(host) else "is no IPv6 address"
    try:
        # Every character beyond ASCII, lone surrogates among them, is the codec's to judge.
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return "cannot be encoded as a host's name (IDNA)"
    return _name_fault(name)


def port_fault(port: object, *, least: int = 1) -> str | None:
    """What keeps a number from being a port, in words; None where nothing does.

    Args:
        port: the number.
        least: 1 to connect to; 0 to listen on, where it means any free port.
    """
    if not isinstance(port, int) or isinstance(port, bool):
        return f"is a {type(port).__name__}, not an int"
    return None if least <= port <= HIGHEST_PORT else f"is not {least} to {HIGHEST_PORT}"


def split_address(address: object, *, least_port: int = 1) -> tuple[str, int]:
    """The host and the port of ``host:port``; an IPv6 address stands in brackets, ``[::1]:9092``.

    Args:
        address: what a user wrote.
        least_port: as in `port_fault`.

    Raises:
        ValueError: it is no such address; the text says what is wrong with it.
    """
    if not isinstance(address, str):
        raise ValueError(f"it is a {type(address).__name__}, not a str 'host:port'")
    host, colon, digits = address.rpartition(":")
    if not colon or not _DIGITS.fullmatch(digits):
        raise ValueError("it does not end in ':' and a port number")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if bracketed != (":" in host):
        raise ValueError("an IPv6 address, and nothing else, stands in brackets: '[::1]:9092'")
    if fault := host_fault(host):
        raise ValueError(f"its host {fault}")
    if fault := port_fault(int(digits), least=least_port):
        raise ValueError(f"its port {fault}")
    return host, int(digits)


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
