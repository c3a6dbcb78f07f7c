"""The HTML page around the pictures: one file that needs nothing else, with tables beside them.

Without its script, and for those who use no mouse, the page has everything in tables. The script
zooms by the wheel, by buttons and by keys, and moves shapes by the times that they carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from kgroup.cli.timeline.picture import in_words, svg
from kgroup.cli.timeline.story import Story


def html(stories: Sequence[Story]) -> str:
    """The page of some groups."""
    files = resources.files("kgroup.cli.timeline")
    body = "\n".join(part for story in stories for part in _group(story))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>kgroup timeline</title>",
            f"<style>\n{(files / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
            body,
            f"<script>\n{(files / 'page.js').read_text(encoding='utf-8')}</script></body></html>",
            "",
        ]
    )


def _group(story: Story) -> Iterator[str]:
    yield f"<section><h1>Group {escape(story.group_id)}</h1>"
    yield (
        '<p class="controls"><button data-zoom="in">zoom in (+)</button>'
        ' <button data-zoom="out">zoom out (-)</button>'
        ' <button data-zoom="left">earlier (&larr;)</button>'
        ' <button data-zoom="right">later (&rarr;)</button>'
        ' <button data-zoom="all">all (0)</button></p>'
    )
    yield f'<div class="picture" tabindex="0">{svg(story)}</div>'
    yield '<p class="detail" aria-live="polite">Point at a shape, or read the tables below.</p>'
    yield "<h2>Rebalances</h2>"
    if story.rebalances:
        yield "<ul>"
        for one in story.rebalances:
            yield f"<li>{one.begin - story.begin:.3f} s: {escape(in_words(one))}</li>"
        yield "</ul>"
    else:
        yield "<p>none</p>"
    yield "<h2>Generations and other phases</h2>"
    yield from _table(
        ("member", "from, s", "for, s", "phase", "generation", "partitions", "end"),
        [
            (
                member.name,
                f"{span.begin - story.begin:.3f}",
                f"{span.end - span.begin:.3f}",
                span.phase,
                "" if span.generation_id < 0 else str(span.generation_id),
                ", ".join(span.partitions),
                span.text,
            )
            for member in story.members
            for span in member.spans
        ],
    )
    yield "<h2>Events</h2>"
    yield from _table(
        ("at, s", "member", "event", "what happened"),
        [
            (f"{at - story.begin:.3f}", name, event, text)
            for at, name, event, text in sorted(
                (mark.at, member.name, mark.event, mark.text)
                for member in story.members
                for mark in member.marks
            )
        ],
    )
    yield "</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "<table><thead><tr>"
    yield "".join(f"<th>{escape(cell)}</th>" for cell in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"
