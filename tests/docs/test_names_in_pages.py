"""Every path, module and name of kgroup that the documentation mentions exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES
from kgroup.metrics.table import METRICS
from kgroup.record_headers import UNREADABLE

ROOT: Final = Path(__file__).resolve().parents[2]
CHANGELOG: Final = ROOT / "CHANGELOG.md"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests" / "conformance" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FOLDERS: Final = "benchmarks|docs|examples|generation|kgroup|tests|watchers"
PATH: Final = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w")
NAME: Final = re.compile(r"(?<![\w/.-])kgroup(?:\.\w+)+")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
STEP: Final = re.compile(r"^\| `([\w/]+\.py)` \| (`.+?`) \|", re.MULTILINE)
PLACEHOLDER: Final = re.compile(r"[A-Z]{4}")
OTHER_NAMES: Final = {
    *(*PROPERTIES, *GROUP_PROPERTIES, UNREADABLE[0], "kgroup.librdkafka", "kgroup.zip"),
    *(metric.opentelemetry for metric in METRICS),
}
"""Properties of the embedded broker, a logger, a file, and metrics."""


def anchors(page: Path) -> Iterator[str]:
    """The anchors that GitHub gives to the headings of a page."""
    for heading in HEADING.findall(page.read_text(encoding="utf-8")):
        yield re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def is_link_good(page: Path, link: str) -> bool:
    """Whether a relative link leads to a file, and to a heading if it names one."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def exists(name: str) -> bool:
    """Whether a dotted name is a module of kgroup, or is defined or imported by one.

    Sources are read and not imported, because most environments lack PySpark.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        files = (place.with_suffix(".py"), place / "__init__.pyi", place / "__init__.py")
        found = [file for file in files if file.is_file()]
        if found:
            return length == len(parts) or any(has(file, parts[length:]) for file in found)
    return False


def has(file: Path, names: list[str]) -> bool:
    """Whether a module has a name; a second one is an attribute of the class of that name."""
    if ".".join(names) in definitions(file):
        return True
    origin = imports(file).get(names[0])
    return origin is not None and exists(".".join([origin, *names[1:]]))


@cache
def definitions(file: Path) -> frozenset[str]:
    """What a file defines: classes, functions, variables; attributes come after their class."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(owner + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{owner}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            found.update(owner + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@cache
def imports(file: Path) -> dict[str, str]:
    """The names that a file imports from modules of kgroup, and where each one is."""
    package = ".".join(file.parent.relative_to(ROOT).parts)
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = f"{package}.{node.module}" if node.level else node.module or ""
            if module.startswith("kgroup"):
                found |= {alias.name: f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_a_page_exist(page: Path) -> None:
    """Links lead somewhere, paths are in the checkout, and dotted names can be imported."""
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not is_link_good(page, link)] == []
    paths = [path for path in PATH.findall(text) if not PLACEHOLDER.search(path)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    names = set(NAME.findall(text)) - OTHER_NAMES
    assert [name for name in sorted(names) if not exists(name)] == []


def test_renamed_names_are_where_the_changelog_says() -> None:
    """In the table of renamed names, the new name of each row exists and the old one does not."""
    table = CHANGELOG.read_text(encoding="utf-8").partition("### Renamed")[2]
    rows = re.findall(r"^\| (`.+) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) > 10
    assert [name for old, _ in rows for name in NAME.findall(old) if exists(name)] == []
    assert [name for _, new in rows for name in NAME.findall(new) if not exists(name)] == []


def test_architecture_names_code_that_exists() -> None:
    """Each step of a path is in the file that the page names."""
    steps = STEP.findall(ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(steps) > 20
    missing = [
        f"{file}: {name}"
        for file, names in steps
        for name in re.findall(r"`([^`]+)`", names)
        if name not in definitions(ROOT / file)
    ]
    assert missing == []
