"""Certificates and keys in PEM: a setting is either the text, or the path of a file with it."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.security.secret import Secret, encodable, secret

_BEGINNING: Final = "-----BEGIN "
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (?P<kind>[A-Z0-9 ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL
)

_LONGEST_MARK: Final = 32
_FORMS: Final = (
    (re.compile(rb"\xfe\xed\xfe\xed|\xce\xce\xce\xce"), "a JKS store"),
    (re.compile(rb"\x30[\x80-\x84]"), "a PKCS#12 store, or a file in DER"),
    (re.compile(rb"\s*-----BEGIN |Bag Attributes"), "a file in PEM"),
)
"""How files of certificates and keys begin."""


def form_of(data: bytes) -> str:
    """What a file with certificates or keys is, by its first bytes; empty if it is none."""
    return next((form for beginning, form in _FORMS if beginning.match(data)), "")


def why_unreadable(place: str, error: Exception) -> str:
    """Why nothing can be read there: another form than PEM, or else what OpenSSL says."""
    try:
        with Path(place).open("rb") as file:
            form = form_of(file.read(_LONGEST_MARK))
    except (OSError, ValueError):
        form = ""
    return f"it is {form}, and must be PEM" if form and "PEM" not in form else str(error)


def is_pem(value: str) -> bool:
    """Whether a setting is text in PEM; else it is the path of a file."""
    return value.lstrip().startswith(_BEGINNING)


def place(value: str | Path | None) -> str | None:
    """A converter: a path becomes its text."""
    return str(value) if isinstance(value, Path) else value


def authorities_place(value: str | Path | Secret | None) -> str | None:
    """A converter: as `place`. Private keys in a text of all certificates are left out."""
    if isinstance(value, Secret) and value.usable:
        return _PRIVATE_KEY.sub("", value.reveal())
    return str(value) if isinstance(value, Path) else value  # type: ignore[return-value] # refused


def certificate_place(value: str | Path | Secret | None) -> str | Secret | None:
    """A converter: as `place`, of a text that is secret if it has the private key too."""
    return str(value) if isinstance(value, Path) else value


def text_of(value: str | Secret) -> str:
    """The path or the text of a certificate, which is secret if it has the private key too."""
    return value.reveal() if isinstance(value, Secret) else value


def secret_place(value: str | Path | Secret | None) -> Secret | None:
    """A converter: a path, or a text that is secret because it may be a key."""
    found: Secret | None = secret(str(value) if isinstance(value, Path) else value)
    return found


def _can_be_read(value: object) -> bool:
    """Whether files and OpenSSL can be given this text; OpenSSL's interface takes PEM in ASCII."""
    return (
        isinstance(value, str)
        and bool(value.strip())
        and "\0" not in value
        and (value.isascii() if is_pem(value) else encodable(value))
    )


_PLACE: Final = "it must be the path of a file in UTF-8, or text in PEM, which is ASCII"
FILE: Final = bounds.optional(bounds.Bound(_can_be_read, "it must be the path of a file in UTF-8"))
PLACE: Final = bounds.optional(bounds.Bound(_can_be_read, _PLACE))
SECRET_PLACE: Final = bounds.optional(
    bounds.Bound(lambda value: value.usable and _can_be_read(value.reveal()), _PLACE)
)
CERTIFICATE_PLACE: Final = bounds.optional(
    bounds.Bound(lambda value: _can_be_read(text_of(value)), _PLACE)
)


def load_authorities(context: ssl.SSLContext, ca: str | None) -> None:
    """Let a context trust these authorities, or those of the system.

    Raises:
        ConfigError: they cannot be read; the error names the setting ``ca``.
    """
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    try:
        if is_pem(ca):
            context.load_verify_locations(cadata=ca)
        elif Path(ca).is_dir():
            context.load_verify_locations(capath=ca)
        else:
            context.load_verify_locations(cafile=ca)
    except (ssl.SSLError, OSError, ValueError) as error:
        why = str(error) if is_pem(ca) else why_unreadable(ca, error)
        raise ConfigError("ca", brief(ca), f"no certificates can be read: {why}") from None


def brief(given: str | Secret) -> str | Secret:
    """What an error shows of a setting."""
    return "<text in PEM>" if isinstance(given, str) and is_pem(given) else given
