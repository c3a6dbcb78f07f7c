"""The installed version of kgroup, for ``kgroup.__version__`` and for brokers (KIP-511)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def installed_version() -> str:
    """The version in the metadata of the installed package; ``unknown`` if there is none."""
    try:
        return version("kgroup")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = installed_version()
