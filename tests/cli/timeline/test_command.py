"""``kgroup timeline``: the page, the picture, and what is refused."""

from __future__ import annotations

import errno
import re
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kgroup.cli import main
from kgroup.cli.timeline.picture import PLOT, TICKS, tick_step, together
from kgroup.cli.timeline.story import COMMIT, ENDS, PLANNED, UNKNOWN
from kgroup.cli.timeline.style import FILLS, SHAPES
from tests.cli.timeline.lines import draining, ended, line, stopped_and_killed, two_members

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title></svg><script>alert("x")</script>'


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        self.names.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]


def run(folder: Path, lines: list[str], *options: str) -> Result:
    """Run the command in a folder with a file of these lines."""
    (folder / "events").write_text("\n".join(lines), encoding="utf-8")
    if "--out" not in options:
        options = (*options, "--out", str(folder / "page.html"))
    return CliRunner().invoke(main, ["timeline", str(folder / "events"), *options])


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    """It is one file with picture, tables and script; all texts of events are text in it."""
    lines = [*two_members(), line(140.0, "a", "RequestFailed", message=HOSTILE)]
    result = run(tmp_path, lines)
    assert result.exit_code == 0, result.output
    assert "group g with 2 members and 2 generations" in result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    tags = Tags(page)
    assert tags.links == []
    assert tags.names.count("script") == 2  # the program, and its data
    assert page.count('class="picture"') == 1
    assert tags.names.count("table") == 3
    assert HOSTILE not in page
    assert "the last to learn of it was a (h, 7), after 0.500 s" in page


def test_the_picture_has_every_span_where_it_belongs(tmp_path: Path) -> None:
    """It is well-formed, and a shape's place agrees with the times that it carries."""
    run(tmp_path, two_members(), "--out", str(tmp_path / "picture.svg"))
    root = ET.parse(tmp_path / "picture.svg").getroot()  # noqa: S314 - our own file
    left, length = (float(root.attrib[f"data-{name}"]) for name in ("left", "length"))
    assert length == pytest.approx(30.2)
    shapes = [one for one in root.iter(f"{SVG}rect") if "data-a" in one.attrib]
    # Spans of both members, bands of the rebalances, and the time that a member took to learn.
    assert len(shapes) == 8 + 3 + 2 + 1
    for shape in shapes:
        at, width = float(shape.attrib["x"]), float(shape.attrib["width"])
        begin, end = float(shape.attrib["data-a"]), float(shape.attrib["data-b"])
        assert at == pytest.approx(left + begin / length * PLOT, abs=0.1)
        assert width == pytest.approx(max((end - begin) / length * PLOT, 1), abs=0.1)
    titles = [one.text or "" for one in root.iter(f"{SVG}title")]
    assert any(
        re.match(
            r"running for 9.500 s, from 1.000 s \(00:01:41.000 UTC\), generation 1, 2 partitions",
            one,
        )
        for one in titles
    )


def slow_hand_overs() -> list[str]:
    """Five rebalances of two members; in each of them, b drains longer than before."""
    lines = [line(100.0, name, "GenerationStarted", 1) for name in ("a", "b")]
    for number in range(1, 6):
        at = 100.0 * (number + 1)
        lines += [
            *(draining(at, name, number) for name in ("a", "b")),
            ended(at + 0.1, "a", number, seconds=0.1),
            ended(at + number, "b", number, seconds=float(number)),
            *(line(at + number + 0.5, n, "GenerationStarted", number + 1) for n in ("a", "b")),
        ]
    return lines


def test_the_longest_rebalances_and_drains_are_printed(tmp_path: Path) -> None:
    """Of the three longest rebalances, whose drain was the longest; the page has all of them."""
    result = run(tmp_path, slow_hand_overs())
    assert result.stdout.splitlines()[1:] == [
        f"group g: the rebalance to generation {number + 1} at 00:{minutes} UTC took"
        f" {number}.5 s; the longest drain was that of b (h, 7), with {number}.0 s"
        for number, minutes in ((5, "10:00"), (4, "08:20"), (3, "06:40"))
    ]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "drains took, s" in page
    assert "the longest drain was that of b (h, 7), with 5.000 s" in page
    assert page.count("a (h, 7): 0.100, b (h, 7): ") == 5


def test_files_of_older_versions_name_no_drain(tmp_path: Path) -> None:
    """They do not say how long a drain took, and are read as they were."""
    assert "drain" not in run(tmp_path, two_members()).stdout


def test_one_group_of_several(tmp_path: Path) -> None:
    """``--group`` chooses; without it each group has its picture."""
    lines = [*two_members(), line(150.0, "c", "Joining", group_id="other")]
    assert "group g with 2 members" in run(tmp_path, lines).output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count('class="picture"') == 2
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(set(ids)) == len(ids)  # else one picture would be cut to the height of another
    assert "group g" not in run(tmp_path, lines, "--group", "other").output
    wrong = run(tmp_path, lines, "--out", str(tmp_path / "picture.svg"))
    assert "a picture has one group; choose by --group one of g, other" in wrong.output
    wrong = run(tmp_path, lines, "--group", "nope")
    assert wrong.exit_code == 1
    assert "the files have no events of group 'nope': g, other" in wrong.output


def test_files_without_events(tmp_path: Path) -> None:
    """The error says how to get some."""
    result = run(tmp_path, ["nothing"])
    assert result.exit_code == 1
    assert "events has no line that is an event of kgroup" in result.output
    assert "GroupConfig(events_to=...)" in result.output


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """It is an error of one line."""
    result = run(tmp_path, two_members(), "--out", str(tmp_path / "no" / "page.html"))
    assert result.exit_code == 1
    assert "No such file or directory" in result.output


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the page: that of a write, unlike that of an open, names no file."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = tmp_path / "events"
    files.write_text("\n".join(two_members()), encoding="utf-8")
    monkeypatch.setattr(Path, "write_text", fail)
    page = str(tmp_path / "page.html")
    result = CliRunner().invoke(main, ["timeline", str(files), "--out", page])
    assert result.exit_code == 1
    assert f"Error: {page}: No space left on device\n" in result.output


def test_the_time_to_learn_of_a_rebalance_is_drawn(tmp_path: Path) -> None:
    """A line in the member's row is as long as the member took, and says so beside it."""
    run(tmp_path, two_members(), "--out", str(tmp_path / "picture.svg"))
    root = ET.parse(tmp_path / "picture.svg").getroot()  # noqa: S314 - our own file
    first, second = (one for one in root.iter(f"{SVG}g") if one.get("class") == "row")
    (lag,) = (one for one in first.iter(f"{SVG}rect") if one.get("class") == "item lag")
    assert float(lag.attrib["data-a"]) == pytest.approx(10.0)
    assert float(lag.attrib["data-b"]) == pytest.approx(10.5)
    (label,) = (one for one in first.iter(f"{SVG}text") if one.get("class") == "after lag")
    assert label.text == "0.5 s"
    assert all(one.get("class") != "item lag" for one in second.iter())


def test_the_time_after_a_death_is_drawn(tmp_path: Path) -> None:
    """The killed member's row has a bar until others work, and the bands are as short as they were.

    The page's tables have the same seconds.
    """
    run(tmp_path, stopped_and_killed(), "--out", str(tmp_path / "picture.svg"))
    root = ET.parse(tmp_path / "picture.svg").getroot()  # noqa: S314 - our own file
    bars = [one for one in root.iter(f"{SVG}g") if one.get("data-kind") == "silent"]
    labels = [text.text for one in bars for text in one.iter(f"{SVG}text")]
    assert labels == ["10.3 s", "stands still 30.7 s"]
    bands = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "band"]
    widths = [float(one.attrib["data-b"]) - float(one.attrib["data-a"]) for one in bands[-2:]]
    assert widths == pytest.approx([0.5, 0.7])
    run(tmp_path, stopped_and_killed())
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (
        "<td>70.000</td><td>00:02:50.000</td><td>30.700</td><td>silent</td><td>1</td><td>t-2</td>"
        in page
    )
    assert "<td>100.000</td><td>00:03:20.000</td><td>2</td><td>0.700</td>" in page


def test_the_legend_has_all_that_is_drawn(tmp_path: Path) -> None:
    """Each end of a generation, each phase and each kind of mark is explained, once."""
    run(tmp_path, two_members(), "--out", str(tmp_path / "picture.svg"))
    picture = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    fills, marks = (one.words for one in FILLS.values()), (one.words for one in SHAPES.values())
    for words in (*fills, *marks):
        assert picture.count(f">{escape(words)}</text>") == 1
    ends = [FILLS[kind] for kind in (PLANNED, *set(ENDS.values()) - {PLANNED}, UNKNOWN)]
    assert len({(one.label, one.lines, one.colour) for one in ends}) == len(ends)
    assert all(one.label and one.lines for one in ends[1:])  # not by colour alone


def test_a_hundred_thousand_commits(tmp_path: Path) -> None:
    """The picture stays small: marks that lie upon each other are one, which says how many."""
    lines = [line(0.0, "a", "Joined", 1), line(0.0, "a", "GenerationStarted", 1)]
    for number in range(100_000):
        at = 1 + number / 100
        lines.append(line(at, "a", "Committed", 1 + number // 100, message="committed t-0 at 1"))
        if number % 100 == 99:
            lines.append(ended(at, "a", 1 + number // 100))
            lines.append(line(at, "a", "GenerationStarted", 2 + number // 100))
    run(tmp_path, lines, "--out", str(tmp_path / "picture.svg"))
    root = ET.parse(tmp_path / "picture.svg").getroot()  # noqa: S314 - our own file
    (group,) = (one for one in root.iter(f"{SVG}g") if one.get("class") == "marks commit")
    assert len(group) <= PLOT / SHAPES[COMMIT].cell + 1
    counted = [re.match(r"(\d+) commits from", one.text or "") for one in group.iter(f"{SVG}title")]
    assert sum(int(one[1]) if one else 1 for one in counted) == 100_000


@pytest.mark.parametrize(
    ("places", "groups"),
    [([1.0], [1]), ([0, 1, 2, 3, 4], [3, 2]), ([0, 5, 5, 20], [1, 2, 1]), ([0, 0, 0], [3])],
)
def test_what_lies_together_is_drawn_as_one(places: list[float], groups: list[int]) -> None:
    """A group has the places within a cell, here of 3 pixels, from its first."""
    assert [len(one) for one in together(places, 3)] == groups


@pytest.mark.parametrize(
    ("length", "step"), [(42.0, 5.0), (10.0, 1.0), (0.001, 0.0001), (11, 2), (7200, 1000)]
)
def test_ticks_are_round_numbers(length: float, step: float) -> None:
    """There are at most ten of them."""
    assert tick_step(length) == pytest.approx(step)
    assert tick_step(length) * TICKS >= length


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("events", None, "is one of the files of events"),
        ("page.png", None, "ends with '.png'; only pages (.html, .htm) and pictures (.svg)"),
        ("page", None, "ends with no suffix"),
        ("other.html", '{"at": 1}', "exists, and is no page or picture"),
    ],
)
def test_a_name_of_the_page_that_is_a_mistake(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    """No file of events is overwritten, and nothing is written in another format than asked for."""
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    result = run(tmp_path, two_members(), "--out", str(tmp_path / name))
    assert result.exit_code == 2
    assert words in result.output
    assert (tmp_path / "events").read_text(encoding="utf-8") == "\n".join(two_members())
    if content is not None:
        assert (tmp_path / name).read_text(encoding="utf-8") == content


def test_a_page_is_replaced(tmp_path: Path) -> None:
    """A page of an earlier run is no mistake."""
    assert run(tmp_path, two_members()).exit_code == 0
    assert run(tmp_path, two_members()).exit_code == 0


def test_members_that_are_not_in_the_files(tmp_path: Path) -> None:
    """The page, the picture and the command say how many are missing."""
    lines = [
        line(1.0, "a", "Joined", 7, leader=True, members=3),
        line(2.0, "a", "GenerationStarted", 7),
        line(3.0, "b", "Committed", 7),
        line(9.0, "a", "Committed", 7),
    ]
    words = "1 of 3 members of generation 7 are not in these files"
    result = run(tmp_path, lines)
    assert f"group g: {words}" in result.stderr
    assert words in (tmp_path / "page.html").read_text(encoding="utf-8")
    run(tmp_path, lines, "--out", str(tmp_path / "picture.svg"))
    assert words in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    complete = [line(1.0, "a", "Joined", 7, leader=True, members=1), *lines[1:2]]
    assert "not in these files" not in run(tmp_path, complete).output


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """The page and the command say whose, and the member's phases are in their order."""
    lines = [
        line(10.0, "a", "Joined", 1),
        line(11.0, "a", "GenerationStarted", 1),
        line(20.0, "a", "GenerationDraining", 1),
        ended(12.5, "a", 1),
        line(12.6, "a", "Joining"),
        line(12.7, "a", "Joined", 2),
        line(12.8, "a", "GenerationStarted", 2),
        line(25.0, "a", "Left", 2),
    ]
    words = "the clock of a (h, 7) was set back: what was before is drawn up to 7.5 s earlier"
    result = run(tmp_path, lines)
    assert f"group g: {words}" in result.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert words in page
    spans = re.findall(
        r'class="item span" data-kind="\w+"><rect data-a="(\S+)" data-b="(\S+)"', page
    )
    assert [tuple(map(float, one)) for one in spans] == [
        (0.0, 1.0),
        (1.0, 10.0),
        (10.0, 10.0),
        (10.1, 10.2),
        (10.2, 10.3),
        (10.3, 22.5),
    ]


def test_the_axis_has_the_time_of_day(tmp_path: Path) -> None:
    """Below the seconds it is in UTC, as readers find it in logs."""
    run(tmp_path, two_members(), "--out", str(tmp_path / "picture.svg"))
    root = ET.parse(tmp_path / "picture.svg").getroot()  # noqa: S314 - our own file
    clocks = [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "clock faint"]
    assert clocks[:3] == ["00:01:40", "00:01:45", "00:01:50"]
