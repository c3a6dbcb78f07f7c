"""The page of all parts, made from the JSON that each part has left in a folder.

INVARIANT: the page depends on these files alone, so that it can be made again from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.handover import report as handover
from benchmarks.history import report as history
from benchmarks.idle import report as idle
from benchmarks.latency import report as latency
from benchmarks.memory import report as memory
from benchmarks.records import report as records
from benchmarks.report.markdown import listing
from benchmarks.report.results import Results
from benchmarks.scripts import report as scripts
from benchmarks.security import report as security
from benchmarks.start import report as start

PAGE: Final = "benchmarks.md"
HISTORY_PAGE: Final = "history.md"
"""A page of its own that shows figures of the part "history"; only its tables are made here."""
NAME: Final = "benchmark-results"
"""The folder of results and pictures, beside the page."""
Markdown = Callable[[Results, str], str]
Pictures = Callable[[Results], Mapping[str, str]]
REPORTS: Final[Mapping[str, tuple[str, Markdown, Pictures]]] = {
    "handover": ("Hand-overs", handover.markdown, handover.pictures),
    "records": ("Records", records.markdown, records.pictures),
    "latency": ("From the producer to the handler", latency.markdown, latency.pictures),
    "memory": ("Memory of a slow consumer", memory.markdown, memory.pictures),
    "idle": ("Idle members", idle.markdown, idle.pictures),
    "start": ("Start and stop", start.markdown, start.pictures),
    "security": ("Encryption and logins", security.markdown, security.pictures),
    "history": ("How groups came to be", history.markdown, history.pictures),
    "assignors": ("Assignors", scripts.markdown, scripts.pictures),
    "spark": ("Spark", scripts.markdown, scripts.pictures),
}
"""For each part its heading, and what makes its section and its pictures."""
HEAD: Final = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")


def files_of(folder: Path) -> dict[Path, str]:
    """The page and the pictures of the results that are in a folder."""
    place = folder / NAME
    files, sections = dict[Path, str](), [HEAD]
    for part, (heading, markdown, pictures) in REPORTS.items():
        path = place / f"{part}.json"
        if path.exists():
            results = Results.read(path)
            sections += [f"## {heading}\n", _made(results), markdown(results, NAME)]
            files |= {place / name: svg for name, svg in pictures(results).items()}
    page, figures = folder / HISTORY_PAGE, place / "history.json"
    if page.exists() and figures.exists():
        text = page.read_text(encoding="utf-8")
        files[page] = history.with_figures(text, Results.read(figures))
    if len(sections) == 1:
        sections.append("No results are kept here yet.\n")
    return {folder / PAGE: "\n".join(sections), **files}


def write(folder: Path) -> list[Path]:
    """Write the page and its pictures, and remove pictures of earlier runs; return the paths."""
    files = files_of(folder)
    for old in (folder / NAME).glob("*.svg"):
        if old not in files:
            old.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def _made(results: Results) -> str:
    """When, on what and with what a part was measured, and what was left out or failed."""
    stated = ", ".join(f"{name} {_value(value)}" for name, value in results.settings.items())
    load = " to ".join(f"{one:g}" for one in results.load)
    machine = "; ".join(f"{name}: {value}" for name, value in results.machine.items())
    text = f"Measured {results.began} UTC ({stated}; load average {load}) on: {machine}.\n\n"
    if not results.complete:
        text += (
            "**Interrupted**: this run did not end; these are the figures that it had by then.\n\n"
        )
    text += listing(results.versions.items())
    text += listing((f"**note** {name}", words) for name, words in results.notes.items())
    text += listing((f"**left out** {name}", why) for name, why in results.left_out.items())
    return text + listing(
        (f"**failed** {name}", _line(why)) for name, why in results.failures().items()
    )


def _value(value: Any) -> str:
    return "/".join(map(str, value)) or "default" if isinstance(value, list) else str(value)


def _line(text: str) -> str:
    """An error's words in one line, without Markdown's own signs."""
    words = " ".join(text.split()).replace("|", "/").replace("`", "'")
    return f"`{words[:300]}`"
