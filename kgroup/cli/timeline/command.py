"""``kgroup timeline``: its options, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from pathlib import Path
from typing import Final

import click

from kgroup.cli.options import FilePath
from kgroup.cli.timeline.page import html
from kgroup.cli.timeline.picture import clock, remarks, svg
from kgroup.cli.timeline.reader import groups_of, of_group, read
from kgroup.cli.timeline.story import Story, story_of
from kgroup.errors import count_of, short_repr

_SUFFIXES: Final = (".html", ".htm", ".svg")
_MOST_REBALANCES: Final = 3
"""At most this many rebalances of a group are printed: the longest."""


@click.command()
@click.argument(
    "files",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    nargs=-1,
    required=True,
)
@click.option(
    "--out",
    type=FilePath(dir_okay=False, path_type=Path),
    default=Path("timeline.html"),
    show_default=True,
    help="An HTML page (.html) that needs no other file, or the picture alone (.svg).",
)
@click.option("--group", "group_id", help="Draw this group only.  [default: all in the files]")
def timeline(files: Sequence[Path], out: Path, group_id: str | None) -> None:
    """Draw what the members of a group did, from their events.

    FILES are those that the setting events_to names, of one or many members.
    """
    refuse_to_overwrite(out, files)
    stories = stories_of(files, group_id)
    for story in stories:
        for remark in filter(None, remarks(story)):
            click.echo(f"group {story.group_id}: {remark}", err=True)
    write(stories, out)
    click.echo(f"{out}: {', '.join(_summary(story) for story in stories)}")
    for story in stories:
        for text in _slowest_drains(story):
            click.echo(text)


def refuse_to_overwrite(out: Path, files: Sequence[Path] = (), option: str = "--out") -> None:
    """Refuse names of the page that are a mistake: the shell gives all files of a pattern as FILES.

    Raises:
        UsageError: it is one of the files, no page and no picture by its name, or a file that is
            neither.
    """
    name = short_repr(str(out))
    hint = f"name the page first, as in {option} timeline.html"
    if any(out.exists() and one.samefile(out) for one in files):
        raise click.UsageError(f"{option} {name} is one of the files of events; {hint}")
    if out.suffix.lower() not in _SUFFIXES:
        ending = short_repr(out.suffix) if out.suffix else "no suffix"
        raise click.UsageError(
            f"{option} {name} ends with {ending}; only pages (.html, .htm) and pictures"
            f" (.svg) are written; {hint}"
        )
    if out.is_file():
        with out.open("rb") as file:
            begin = file.read(1000)
        if begin.strip() and not begin.lstrip().startswith(b"<"):
            raise click.UsageError(
                f"{option} {name} exists, and is no page or picture that could be replaced; {hint}"
            )


def stories_of(files: Sequence[Path], group_id: str | None = None) -> list[Story]:
    """The groups of some files.

    Raises:
        ClickException: a file cannot be read, or there is nothing to draw.
    """
    try:
        entries, sources = read(files)
    except OSError as error:
        # Only an error of opening names its file, not one of reading.
        where = error.filename or ", ".join(map(str, files))
        raise click.ClickException(f"{where}: {error.strerror}") from error
    groups = groups_of(entries)
    for one in sources:
        if one.looks_like:
            click.echo(f"{one.path} {one.looks_like}", err=True)
        elif one.refused:
            verb = "is no event" if one.refused == 1 else "are no events"
            lines = count_of(one.refused, "line")
            click.echo(f"{one.path}: {lines} {verb} of kgroup, and left out", err=True)
    if group_id is not None and group_id not in groups:
        known = ", ".join(groups[:20]) or "none"
        raise click.ClickException(f"the files have no events of group {group_id!r}: {known}")
    if not groups:
        raise click.ClickException(
            "the files have no events; name them in GroupConfig(events_to=...) and run the members"
        )
    wanted = groups if group_id is None else [group_id]
    return [story_of(list(of_group(entries, one))) for one in wanted]


def write(stories: Sequence[Story], out: Path) -> None:
    """Write the page, or the picture if the file's name ends with ``.svg``.

    Raises:
        ClickException: the file cannot be written, or several groups are to be in one picture.
    """
    if out.suffix.lower() == ".svg":
        if len(stories) > 1:
            groups = ", ".join(story.group_id for story in stories)
            raise click.ClickException(
                f"a picture has one group; choose by --group one of {groups}"
            )
        text = svg(stories[0]) + "\n"
    else:
        text = html(stories)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}") from error


def _summary(story: Story) -> str:
    return (
        f"group {story.group_id} with {count_of(len(story.members), 'member')} and"
        f" {count_of(len(story.rebalances), 'generation')}"
    )


def _slowest_drains(story: Story) -> Iterator[str]:
    """For the longest rebalances, for which member's drain the others waited.

    Rebalances without a known drain are left out.
    """
    told = [
        (one.end - one.begin, one.generation_id, one.begin, slowest)
        for one in story.rebalances
        if (slowest := one.slowest) is not None
    ]
    for length, number, begin, (member, seconds) in nlargest(_MOST_REBALANCES, told):
        yield (
            f"group {story.group_id}: the rebalance to generation {number} at"
            f" {clock(story, begin - story.begin, 0)} UTC took {length:.1f} s; the longest drain"
            f" was that of {member}, with {seconds:.1f} s"
        )
