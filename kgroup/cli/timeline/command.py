"""``kgroup timeline``: its options, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kgroup.cli.options import FilePath
from kgroup.cli.timeline.page import html
from kgroup.cli.timeline.picture import svg
from kgroup.cli.timeline.reader import groups_of, of_group, read
from kgroup.cli.timeline.story import Story, story_of


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
    help="An HTML page that needs no other file; or, if it ends with .svg, the picture alone.",
)
@click.option("--group", "group_id", help="Draw this group only.  [default: all in the files]")
def timeline(files: Sequence[Path], out: Path, group_id: str | None) -> None:
    """Draw what the members of a group did, from their events.

    FILES are those that the setting events_to names, of one or many members.
    """
    stories = stories_of(files, group_id)
    write(stories, out)
    click.echo(f"{out}: {', '.join(_summary(story) for story in stories)}")


def stories_of(files: Sequence[Path], group_id: str | None = None) -> list[Story]:
    """The groups of some files.

    Raises:
        ClickException: a file cannot be read, or there is nothing to draw.
    """
    try:
        entries, refused = read(files)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    groups = groups_of(entries)
    if refused:
        click.echo(f"{refused} lines are no events of kgroup and are left out", err=True)
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
    if out.suffix == ".svg":
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
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


def _summary(story: Story) -> str:
    return (
        f"group {story.group_id} with {len(story.members)} members and"
        f" {len(story.rebalances)} generations"
    )
