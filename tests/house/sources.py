"""The sources of a checkout, as text by module name: what the house's tests read."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LINKS, ROOT


def package_files(root: Path = ROOT) -> dict[str, Path]:
    """Every module of kgroup, those behind the two links included, and its file."""
    folders = [root / "kgroup", *(root / link for link in LINKS)]
    files = {path for folder in folders for path in folder.rglob("*.py")}
    return {module_name(path.relative_to(root)): path for path in sorted(files)}


def package_sources(root: Path = ROOT) -> dict[str, str]:
    """Every module of kgroup and its text."""
    return {name: path.read_text(encoding="utf-8") for name, path in package_files(root).items()}


def packages(root: Path = ROOT) -> list[str]:
    """Every package of kgroup, by the folders that have an ``__init__.py``, sorted."""
    files = package_files(root)
    return sorted(name for name, path in files.items() if path.name == "__init__.py")


def module_name(path: Path) -> str:
    """The name by which a file, relative to the checkout, is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
