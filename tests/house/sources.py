"""The modules and packages of a checkout, by name."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LINKS, ROOT


def package_files(root: Path = ROOT) -> dict[str, Path]:
    """Every module of kgroup and its file, including those behind the two links."""
    folders = [root / "kgroup", *(root / link for link in LINKS)]
    files = {path for folder in folders for path in folder.rglob("*.py")}
    return {module_name(path.relative_to(root)): path for path in sorted(files)}


def packages(root: Path = ROOT) -> list[str]:
    """Every package of kgroup (each folder with an ``__init__.py``), sorted."""
    files = package_files(root)
    return sorted(name for name, path in files.items() if path.name == "__init__.py")


def module_name(path: Path) -> str:
    """The name under which a file is imported; its path is relative to the checkout."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
