"""Builds the distributions of the checkout as a release does, with the installed setuptools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal

from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

from tests.conftest import ROOT

LEFT_BY_TOOLS: Final = (".git", ".tox", ".venv*", ".*_cache", ".hypothesis", "__pycache__")
LEFT_BY_BUILDS: Final = ("build", "dist", "*.egg-info")


def copy_checkout(into: Path) -> Path:
    """Copy the checkout with its links and without what tools and earlier builds left."""
    ignore = shutil.ignore_patterns(*LEFT_BY_TOOLS, *LEFT_BY_BUILDS)
    return Path(shutil.copytree(ROOT, into, symlinks=True, ignore=ignore))


def build(tree: Path, kind: Literal["sdist", "wheel"], into: Path) -> Path:
    """Build a ``wheel`` or an ``sdist`` of a tree with the installed setuptools."""
    builder = ProjectBuilder(tree, runner=quiet_subprocess_runner)
    return Path(builder.build(kind, into))
