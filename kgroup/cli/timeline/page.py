"""The HTML page around the pictures: one file that needs nothing else, with tables beside them.

Without its script the page has everything in its pictures and tables. The script zooms and moves,
draws marks that were drawn as one separately when there is room, and lets keys walk through what is
drawn. For that it needs the time and text of each mark, which the page has as JSON.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Final

from kgroup.cli.timeline.picture import clock, extent, keys, patterns, svg, text_of
from kgroup.cli.timeline.story import COMMIT, MemberStory, Story
from kgroup.cli.timeline.style import SHAPES

_REBALANCES: Final = (
    "at, s",
    "UTC",
    "to generation",
    "took, s",
    "members learned of it after, s",
    "learned too late, after, s",
    "worked again after, s",
    "drains took, s",
)
_PHASES: Final = (
    "member",
    "from, s",
    "UTC",
    "for, s",
    "phase",
    "generation",
    "partitions",
    "commits",
    "kind of end",
    "end",
)
_EVENTS: Final = ("at, s", "UTC", "member", "event", "what happened")


def html(stories: Sequence[Story]) -> str:
    """The page of some groups."""
    files = resources.files("kgroup.cli.timeline")
    groups = (_group(story, number) for number, story in enumerate(stories, start=1))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            "<title>kgroup timeline</title>",
            f"<style>\n{(files / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
            "<h1>kgroup timeline</h1>",
            *_legend(),
            *(part for group in groups for part in group),
            f"<script>\n{(files / 'page.js').read_text(encoding='utf-8')}</script></body></html>",
            "",
        ]
    )


def _legend() -> Iterator[str]:
    """What colours and marks mean, as text that wraps; its patterns have the number 0."""
    yield '<details class="legend" open><summary>Colours and marks</summary>'
    yield f'<svg width="0" height="0" aria-hidden="true"><defs>{patterns(0)}</defs></svg><ul>'
    for drawing, words in keys(0):
        yield (
            '<li><svg width="18" height="13" viewBox="0 0 18 13" aria-hidden="true">'
            f"{drawing}</svg> {escape(words)}</li>"
        )
    yield "</ul></details>"


def _group(story: Story, number: int) -> Iterator[str]:
    name = escape(story.group_id)
    yield f'<section class="group"><h2>Group {name}</h2><p>{escape(extent(story))}</p>'
    yield (
        '<p class="controls"><button type="button" data-move="in">zoom in (+)</button>'
        ' <button type="button" data-move="out">zoom out (&minus;)</button>'
        ' <button type="button" data-move="left">earlier (&larr;)</button>'
        ' <button type="button" data-move="right">later (&rarr;)</button>'
        ' <button type="button" data-move="all">all (0)</button>'
        ' <output class="range"></output></p>'
    )
    yield (
        f'<p class="help" id="help-{number}">Drag to move, zoom with Ctrl and the wheel or with two'
        " fingers, point at a shape for its details. Keys: + and &minus; zoom, &larr; and &rarr;"
        " move, &uarr; and &darr; choose a member, n and p its next and previous phase or mark, c"
        " and C its commits. Below the picture are tables with the same facts.</p>"
    )
    yield (
        '<div class="picture" tabindex="0" role="application" aria-roledescription="timeline"'
        f' aria-label="Timeline of group {name}" aria-describedby="help-{number}">'
    )
    yield f"{svg(story, number, alone=False)}</div>"
    yield '<p class="detail" role="status">Point at a shape, or read the tables below.</p>'
    yield f'<script type="application/json" class="marks">{_marks(story)}</script>'
    yield from _table("Rebalances", _REBALANCES, _rebalances(story))
    yield from _table("Generations and other phases", _PHASES, _phases(story))
    yield from _table("Events", _EVENTS, _events(story))
    yield "</section>"


def _marks(story: Story) -> str:
    """For each row the time and text of its marks, by kind, as JSON within HTML."""
    rows = [
        {
            kind: [
                (round(mark.at - story.begin, 6), text_of(mark))
                for mark in member.marks
                if mark.kind == kind
            ]
            for kind in SHAPES
        }
        for member in story.members
    ]
    # Nothing in a script ends it but "</script", and "<!--" may hide that.
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _rebalances(story: Story) -> Iterator[Sequence[str]]:
    for one in story.rebalances:
        yield (
            f"{one.begin - story.begin:.3f}",
            clock(story, one.begin - story.begin),
            str(one.generation_id),
            f"{one.end - one.begin:.3f}",
            _seconds(one.learned),
            _seconds(one.late),
            _seconds(one.started),
            _seconds(one.drained),
        )


def _seconds(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3f}" for name, value in values.items())


def _phases(story: Story) -> Iterator[Sequence[str]]:
    for member in story.members:
        for span, commits in zip(member.spans, _commits(member), strict=True):
            yield (
                member.name,
                f"{span.begin - story.begin:.3f}",
                clock(story, span.begin - story.begin),
                f"{span.end - span.begin:.3f}",
                span.phase,
                "" if span.generation_id < 0 else str(span.generation_id),
                ", ".join(span.partitions),
                str(commits or ""),
                span.kind if span.text else "",
                span.text,
            )


def _commits(member: MemberStory) -> Iterator[int]:
    """How many commits were accepted in each span of a member."""
    commits = [mark.at for mark in member.marks if mark.kind == COMMIT]
    for span in member.spans:
        yield bisect_right(commits, span.end) - bisect_right(commits, span.begin)


def _events(story: Story) -> list[Sequence[str]]:
    """All marks but commits, which are too many for a table; the phases count them."""
    return [
        (f"{at - story.begin:.3f}", clock(story, at - story.begin), name, event, text)
        for at, name, event, text in sorted(
            (mark.at, member.name, mark.event, mark.text)
            for member in story.members
            for mark in member.marks
            if mark.kind != COMMIT
        )
    ]


def _table(name: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table that can be scrolled sideways, by keys too, where the screen is narrow."""
    yield f"<h3>{name}</h3>"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>'
    yield "<thead><tr>" + "".join(f'<th scope="col">{cell}</th>' for cell in head) + "</tr></thead>"
    yield "<tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"
