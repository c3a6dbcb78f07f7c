"""The reference of the site has every public name, and none twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import kgroup
from kgroup import aio, errors, threaded

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
ERRORS = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and one.__module__ == errors.__name__
]
MODULES = {name for name in dir(kgroup) if isinstance(getattr(kgroup, name), ModuleType)}
ENTRY = re.compile(r"^\.\. auto(?:class|function):: ([\w.]+)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "package", "names"),
    [
        ("kgroup.md", "kgroup", dir(kgroup)),
        ("aio.md", "kgroup.aio", aio.__all__),
        ("threaded.md", "kgroup.threaded", threaded.__all__),
    ],
)
def test_every_public_name_has_an_entry(page: str, package: str, names: list[str]) -> None:
    """A name that programs import can be looked up; modules have entries of their own."""
    entries = Counter(ENTRY.findall((REFERENCE / page).read_text(encoding="utf-8")))
    elsewhere = {*MODULES, *(one.__name__ for one in ERRORS)}
    assert entries == Counter(f"{package}.{one}" for one in names if one not in elsewhere)
