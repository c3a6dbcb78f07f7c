"""Shows the output of a program as it was."""

from __future__ import annotations

from benchmarks.report.results import Results


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    del pictures
    texts = (row["text"].strip("\n") for row in results.rows)
    return "".join(f"```text\n{text}\n```\n" for text in texts)


def pictures(results: Results) -> dict[str, str]:
    """There are none."""
    del results
    return {}
