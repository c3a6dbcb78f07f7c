"""Bounds for arguments of this package's helpers.

Without them a wrong number could mean an endless wait: NaN is neither before nor after a deadline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import text_fault

PATIENCE: Final = bounds.seconds(0, 86_400)
"""How long to wait for anything that a test starts or requests."""
_HEAP: Final = re.compile(r"[1-9][0-9]{0,8}[kKmMgG]")
HEAP: Final = bounds.Bound(
    lambda value: isinstance(value, str) and _HEAP.fullmatch(value) is not None,
    "it must be a size as Java writes it, such as 512m or 1g",
)
WORKERS: Final = bounds.whole(0, 64)
"""Worker processes of a cluster on one machine; each takes about 200 MB, its executors more."""
CORES: Final = bounds.whole(1, 1024)
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_properties(settings: Mapping[Any, object]) -> None:
    """Check that these settings can be written to a properties file.

    Raises:
        ConfigError: a name is not a property's name, or a value cannot be written.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError("settings", settings, "it must be a mapping of names to values")
    for name, value in settings.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                "settings", name, "a property's name consists of letters, digits, '.', '_' and '-'"
            )
        try:
            fault = text_fault(str(value))
        except Exception as error:
            raise ConfigError(name, value, "str() of it raises an error") from error
        if fault:
            raise ConfigError(name, value, f"its text {fault}")
