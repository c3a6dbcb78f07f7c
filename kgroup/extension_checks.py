"""Checks of a program's own assignors and record sources.

An attribute of such an object may be a property that raises. These checks read every attribute that
kgroup uses, when the settings are made, so that a mistake shows there, and not when the member
first becomes the group's leader.
"""

from __future__ import annotations

from typing import Any, Final

from kgroup.errors import ConfigError, UsageError, short_repr
from kgroup.types import text_fault

WANTED: Final = "an assignor is an object with a name, which is a str, and a method assign()"
_METHODS: Final = ("user_data", "on_assignment")
"""The methods that an assignor may have in addition to ``assign``."""
SOURCE_METHODS: Final = (
    "__aenter__",
    "__aexit__",
    "assign",
    "open",
    "receive",
    "pause",
    "resume",
    "seek",
    "revoke",
)
"""The methods that a ``RecordSource`` must have."""
_OPTIONAL_SOURCE_METHODS: Final = ("prepare", "use_addresses", "use_topic_ids")
"""The methods that a ``RecordSource`` may have in addition."""
_MISSING: Final = object()


def check_assignor(field: str, assignor: Any) -> str:
    """Check a custom assignor, and return its name.

    Args:
        field: the setting's name, for the error.
        assignor: the object.

    Raises:
        ConfigError: an attribute is missing, has a wrong type, or raises when it is read.
    """

    def read(name: str) -> Any:
        try:
            return getattr(assignor, name, _MISSING)
        except Exception as error:
            raise ConfigError(
                field, assignor, f"its {name!r} raised {_said(error)}; {WANTED}"
            ) from error

    name = read("name")
    if isinstance(assignor, type):
        raise ConfigError(field, assignor, f"it is a class, not an instance of it; {WANTED}")
    if not isinstance(name, str) or not name or not callable(read("assign")):
        raise ConfigError(field, assignor, WANTED)
    if fault := text_fault(name):
        raise ConfigError(field, assignor, f"its name {fault}")
    for method in _METHODS:
        found = read(method)
        if found is not _MISSING and not callable(found):
            raise ConfigError(field, assignor, f"its {method}, if it has one, must be a method")
    if not isinstance(read("cooperative"), bool) and read("cooperative") is not _MISSING:
        raise ConfigError(
            field, assignor, "its 'cooperative', if it has one, must be True or False"
        )
    return name


def check_source(source: Any) -> None:
    """Check that a record source has all methods that a member calls.

    Raises:
        UsageError: a method is missing, or reading it raises.
    """
    for name in (*SOURCE_METHODS, *_OPTIONAL_SOURCE_METHODS):
        try:
            found = getattr(source, name, _MISSING)
        except Exception as error:
            raise UsageError(
                f"the record source {short_repr(source)} cannot be used: its {name!r} raised"
                f" {_said(error)}"
            ) from error
        if callable(found) or (found is _MISSING and name in _OPTIONAL_SOURCE_METHODS):
            continue
        fault = f"it has no {name}()"
        if name in _OPTIONAL_SOURCE_METHODS:
            fault = f"its {name}, if it has one, must be a method"
        raise UsageError(f"the record source {short_repr(source)} cannot be used: {fault}")


def _said(error: Exception) -> str:
    """An exception in one line; it works even if the exception's own ``__str__`` raises."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 # whatever the exception's own __str__ raises
        text = ""
    return f"{type(error).__name__}: {short_repr(text)[1:-1]}" if text else type(error).__name__
