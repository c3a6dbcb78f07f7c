"""Certificates and keys in PEM: a setting is either the text, or the path of a file with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kgroup import bounds
from kgroup.security.secret import Secret, secret

PEM: Final = "-----BEGIN "
"""How a text in PEM begins; a setting that begins otherwise is the path of a file."""


def place(value: str | Path | None) -> str | None:
    """A converter: a path becomes its text."""
    return str(value) if isinstance(value, Path) else value


def secret_place(value: str | Path | Secret | None) -> Secret | None:
    """A converter: a path, or a text that is secret because it may be a key."""
    found: Secret | None = secret(str(value) if isinstance(value, Path) else value)
    return found


PLACE: Final = bounds.optional(
    bounds.Bound(
        lambda value: isinstance(value, str) and bool(value.strip()) and "\0" not in value,
        "it must be the path of a file, or text in PEM",
    )
)
