"""The values of Kafka's and librdkafka's properties: what each kind of text means.

Each function here makes a setting's value of a property's text, or raises a ValueError that says
what is allowed. ``kgroup.security.property_table`` says which property has which kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from kgroup.security.secret import secret_if_private

_MODULE: Final = "org.apache.kafka.clients.consumer."
_ASSIGNORS: Final = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "stickyassignor": "sticky",
    "cooperativestickyassignor": "cooperative-sticky",
}
"""librdkafka's names, and the classes of the Java client, in lower case."""
_RESETS: Final = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "none": "error",
    "error": "error",
}
_WHOLE: Final = re.compile(r"[0-9]{1,15}")


def milliseconds(text: str) -> float:
    """Seconds, of a number of milliseconds."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError("it must be a whole number of milliseconds")
    return int(text) / 1000


def kilobytes(text: str) -> int:
    """Bytes, of a number of kilobytes."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError("it must be a whole number of kilobytes")
    return int(text) * 1024


def host_names(text: str) -> bool:
    """Whether host names are checked."""
    algorithms = {"https": True, "": False, "none": False}
    if text.strip().lower() not in algorithms:
        raise ValueError("it must be 'https', or empty or 'none' for no check")
    return algorithms[text.strip().lower()]


def assignors(text: str) -> tuple[str, ...]:
    """The names of assignors, of a list of classes or of names."""
    names = [piece.strip().removeprefix(_MODULE) for piece in text.split(",")]
    if unknown := [name for name in names if name.lower() not in _ASSIGNORS]:
        raise ValueError(
            f"{unknown[0]!r:.100} is no assignor of Kafka; give your own by"
            " from_properties(..., assignors=[...])"
        )
    return tuple(_ASSIGNORS[name.lower()] for name in names)


def offset_reset(text: str) -> str:
    """Where to start without an offset."""
    if text.strip().lower() not in _RESETS:
        raise ValueError(f"it must be one of {', '.join(_RESETS)}")
    return _RESETS[text.strip().lower()]


def authorities(text: str) -> Any:
    """A place of certificate authorities; ``probe`` is librdkafka's word for the system's."""
    return None if text.strip() == "probe" else maybe_private(text)


def maybe_private(text: str) -> Any:
    """A certificate or a URL, which is a secret if it has a private key or a user."""
    return secret_if_private(text.strip())


def only(*values: str) -> Callable[[str], Any]:
    """Refuse all values but these, in any case."""

    def check(text: str) -> None:
        pieces = {piece.strip().lower() for piece in text.split(",")} - {""}
        if not pieces <= set(values):
            raise ValueError(f"only {' or '.join(map(repr, values))} is possible")

    return check


def nothing(text: str) -> None:
    """Refuse all values but an empty one."""
    if text.strip():
        raise ValueError("it is not possible")


def versions(text: str) -> None:
    """Refuse versions of TLS that brokers and librdkafka do not have any more."""
    minimum_version(text)


def minimum_version(text: str) -> str:
    """The oldest of a list of versions, of those that there are today."""
    pieces = {piece.strip().lower() for piece in text.split(",")}
    if pieces.isdisjoint({"", "tls", "tlsv1.2", "tlsv1.3"}):
        raise ValueError("it must contain TLSv1.2 or TLSv1.3")
    return "TLSv1.3" if pieces == {"tlsv1.3"} else "TLSv1.2"


def extensions(text: str) -> dict[str, str]:
    """SASL extensions, as librdkafka writes them: ``name=value,name=value``."""
    pairs = [piece.strip().partition("=") for piece in text.split(",") if piece.strip()]
    if not all(mark for _, mark, _ in pairs):
        raise ValueError("it must be 'NAME=VALUE,NAME=VALUE'")
    return {name: value for name, _, value in pairs}


def boolean(text: str) -> bool:
    """True or False."""
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError("it must be true or false")
    return text.strip().lower() == "true"
