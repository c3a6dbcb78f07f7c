"""The generated pages of docs/ are up to date."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def generated() -> Iterator[tuple[Path, str]]:
    """Run the functions of docs/make.py without writing their pages."""
    specification = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    yield from module.pages()


@pytest.mark.parametrize(
    ("path", "text"), [(p, t) for p, t in generated()], ids=lambda it: str(it)[-20:]
)
def test_a_generated_page_is_current(path: Path, text: str) -> None:
    """Each page is what the tables in the code give; if not, run ``python docs/make.py``."""
    assert path.read_text() == text
