"""The words that pages quote from the log, to be searched for, are in the texts of the events."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import pytest

from kgroup import events
from tests.conftest import ROOT
from tests.test_events import EVENTS

QUOTED: Final = re.compile(r'`(\w+)`(?: events)?(?: \(|, |\) is |: )+"([^"]+)"')
PAGES: Final = [
    page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "changelog.md"
]


def texts() -> dict[str, list[str]]:
    """The texts of events, by the events' names."""
    found = defaultdict(list)
    for kind, _, _, message in EVENTS:
        found[kind.__name__].append(message)
    return found


def quoted() -> list[tuple[str, str, str]]:
    """Page, event and words, wherever words in quotation marks follow the name of an event."""
    return [
        (page.name, name, words.replace("\n", " "))
        for page in PAGES
        for name, words in QUOTED.findall(page.read_text(encoding="utf-8"))
        if hasattr(events, name)
    ]


@pytest.mark.parametrize(("page", "name", "words"), quoted())
def test_words_are_in_the_text(page: str, name: str, words: str) -> None:
    """A reader finds the event by them."""
    assert any(words in text for text in texts()[name]), page


def test_words_are_found_in_pages() -> None:
    """So that the test above tests something."""
    pages = [page for page, _, _ in quoted()]
    assert pages.count("operating.md") >= 12
    assert {"workers.md", "spark.md"} <= set(pages)
