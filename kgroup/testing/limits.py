"""Bounds of what the helpers of this package take: a wrong number would be a wait without end.

NaN is neither before nor after any deadline, so that a loop which waits for one has no end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import text_fault

PATIENCE: Final = bounds.seconds(0, 86_400)
"""How long to wait for anything that a test starts or asks for."""
_HEAP: Final = re.compile(r"[1-9][0-9]{0,8}[kKmMgG]")
HEAP: Final = bounds.Bound(
    lambda value: isinstance(value, str) and _HEAP.fullmatch(value) is not None,
    "it must be a size as Java writes it, such as 512m or 1g",
)
WORKERS: Final = bounds.whole(0, 64)
"""Processes of a cluster on one machine; a worker takes about 200 MB, its executors more."""
CORES: Final = bounds.whole(1, 1024)
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_properties(settings: Mapping[Any, object]) -> None:
    """Whether a properties file can say these settings.

    Raises:
        ConfigError: a name is none, or the text of a value cannot be written.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError("settings", settings, "it must be a mapping of names to values")
    for name, value in settings.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                "settings", name, "a property's name has letters, digits, '.', '_', '-'"
            )
        try:
            fault = text_fault(str(value))
        except Exception as error:
            raise ConfigError(name, value, "its text cannot be had") from error
        if fault:
            raise ConfigError(name, value, f"its text {fault}")
