"""Imports the public names of a package when a program first uses them.

Spark's executors, and every run of pytest that has kgroup's plugin, import ``kgroup`` without
needing a group, an event loop or the codec. A package lists its names in ``__all__``, and again in
imports for type checkers only; ruff reports a name that is in one list and not in the other.

Source: PEP 562.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Collection[str], modules: Collection[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: the package's name.
        names: its public names.
        modules: the modules that have them, relative to the package. They are searched in this
            order, so that the modules that import the least should come first.
    """

    def find(name: str) -> Any:
        if name in names:
            for module in modules:
                found = vars(import_module(f"{package}.{module}"))
                if name in found:
                    setattr(sys.modules[package], name, found[name])
                    return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return find, listed
