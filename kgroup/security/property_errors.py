"""Errors about settings that properties gave: they name the property, and not the field of Python.

The classes of settings check what properties gave as they check what programs give. Whoever wrote a
file knows its properties only.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, final

from kgroup.errors import ConfigError, short_repr
from kgroup.security.property_table import BY_NAME, ROWS, Property, PropertyKind
from kgroup.security.property_values import kilobytes, milliseconds
from kgroup.security.secret import Hidden

__all__ = ["FieldNames"]

_PARTS: Final = frozenset({PropertyKind.GROUP, PropertyKind.SECURITY, PropertyKind.STORE})
_MADE_OF: Final = {
    "ca": "truststore",
    "certificate": "keystore",
    "username": "jaas",
    "password": "jaas",
}
"""Fields that one property of several fields gives, too."""
_IN_JAAS: Final = ("username", "password")
_FORM: Final = (
    'MODULE required username="NAME" password="PASSWORD"; with PlainLoginModule for PLAIN, and'
    " ScramLoginModule for SCRAM"
)
_FIELD: Final = re.compile(r"(?<=set )[a-z]+\b|\b[a-z]+_[a-z_]+\b")
"""Where an error mentions another field."""
_FOR_PROGRAMS: Final = re.compile(r", or else credentials|; durations are in seconds.*")
"""What has no meaning in a file: a function, and that a program gave milliseconds."""


@final
class FieldNames:
    """The properties that set fields.

    Args:
        used: the names of the properties that were given.
        source: the file that has them; empty if there is none.
    """

    def __init__(self, used: Collection[str], source: str) -> None:
        self._used = used
        self._source = source
        rows = [BY_NAME[name] for name in used if name in BY_NAME]
        self._java = not any(
            row.java not in used and any(name in used for name in row.librdkafka) for row in rows
        )

    def translated(self, error: ConfigError) -> ConfigError:
        """An error about a field as one about the property that sets it, or would set it.

        One about a property gets the name of the file; one about a field that no property sets
        stays as it is.
        """
        if error.source:
            return error
        if error.field in BY_NAME:
            return ConfigError(error.field, error.value, error.allowed, self._source)
        name = self._name(error.field)
        if name is None:
            return error
        allowed = _FIELD.sub(self._mentioned, _FOR_PROGRAMS.sub("", error.allowed))
        value = error.value
        row = BY_NAME[name]
        if value is None and row.field == "jaas" and error.field in _IN_JAAS:
            if name in self._used:
                value, allowed = Hidden("<secret>"), f"it has no {error.field}; it must be {_FORM}"
            else:
                allowed = f"this login needs it: {_FORM}"
        elif value is not None:
            value = _shown(row, value, default=name not in self._used)
        return ConfigError(name, value, allowed, self._source)

    def _name(self, field: str) -> str | None:
        """The name that was used for a field; otherwise that of the client whose names were."""
        fields = (field, _MADE_OF.get(field))
        rows = [row for row in ROWS if row.part in _PARTS and row.field and row.field in fields]
        used = [name for row in rows for name in row.names if name in self._used]
        java = [row.java for row in rows if row.java]
        theirs = [name for row in rows for name in row.librdkafka]
        ordered = (*used, *java, *theirs) if self._java else (*used, *theirs, *java)
        return next(iter(ordered), None)

    def _mentioned(self, found: re.Match[str]) -> str:
        return self._name(found[0]) or found[0]


def _shown(row: Property, value: Any, *, default: bool) -> object:
    """A field's value, as the property would have it."""
    remarks = ["the default"] if default else []
    text = ""
    if row.read is milliseconds:
        text = f"{value * 1000:.15g}"
        remarks.insert(0, f"{value:.15g} s")
    elif row.read is kilobytes:
        text = f"{value / 1024:.15g}"
        remarks.insert(0, f"{value} bytes")
    if not remarks:
        return value
    return Hidden(f"{text or short_repr(value)} ({', '.join(remarks)})")
