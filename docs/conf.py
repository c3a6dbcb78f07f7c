"""How Sphinx builds the site: ``sphinx-build -W docs build/site``.

The pages are those that readers of the repository see. The home page is README.md, and the
reference comes from docstrings. Links to files that are no pages, such as examples, become
downloads.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # the reference is that of this checkout

project = "kgroup"
copyright = "the authors of kgroup"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
exclude_patterns = ["benchmark-results"]
# Annotations name classes as their module does, and `Generation` is a class of two modules.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = "kgroup"
html_show_sphinx = False

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# In docstrings, `name` is another name of the same module, and ``text`` is literal.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Cancellation", "Source"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}

FROM_ROOT = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages that begin with the text of a file in the root of the repository."""
_LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<path>[^)#:]+)(?P<place>#[^)]*)?\)")


def read_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the file from the root, and let links lead to pages of the site."""
    if page in FROM_ROOT:
        text = (ROOT / FROM_ROOT[page]).read_text(encoding="utf-8")
        source[0] = f"{_with_links(text, ROOT)}\n{source[0]}"
    else:
        source[0] = _with_links(source[0], DOCS)


def _with_links(text: str, folder: Path) -> str:
    """The text with its links as seen from docs/; those to no file of the site become text."""
    pages = {ROOT / file: f"{page}.md" for page, file in FROM_ROOT.items()}
    pages[ROOT / "examples"] = "examples.md"

    def link(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if target in pages:
            path = pages[target]
        elif target.is_relative_to(DOCS):
            path = str(target.relative_to(DOCS))
        elif target.is_file() and target.suffix != ".md":
            path = f"../{target.relative_to(ROOT)}"
        else:
            return found["text"]
        return f"[{found['text']}]({path}{found['place'] or ''})"

    return _LINK.sub(link, text)


def keep_sentences(*arguments: Any) -> None:
    """Let napoleon take nothing before a colon in "Returns" for a type; types are in signatures."""
    lines: list[str] = arguments[-1]
    for number, line in enumerate(lines[:-1]):
        if line.strip() in ("Returns:", "Yields:"):
            text = lines[number + 1]
            indent = len(text) - len(text.lstrip())
            lines[number + 1] = f"{text[:indent]}: {text[indent:]}"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", keep_sentences, priority=400)  # before napoleon
    app.connect("source-read", read_page)
