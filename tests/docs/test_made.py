"""The pages of docs/ that are made from the code are current."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def made() -> Iterator[tuple[Path, str]]:
    """What docs/make.py would write."""
    specification = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    yield from module.pages()


@pytest.mark.parametrize(
    ("path", "text"), [(p, t) for p, t in made()], ids=lambda it: str(it)[-20:]
)
def test_a_made_page_is_current(path: Path, text: str) -> None:
    """Each page says what the tables in the code say; else run ``python docs/make.py``."""
    assert path.read_text() == text
