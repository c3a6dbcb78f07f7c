"""Files of events are read, whatever a process has left in them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from kgroup.cli.timeline.reader import Entry, groups_of, kind_of, of_group, read
from tests.cli.timeline.lines import line


def test_files_are_read_together(tmp_path: Path) -> None:
    """The events of several members are in the order of their time."""
    (tmp_path / "a").write_text(line(2.0, "a", "Joining") + "\n" + line(4.0, "a", "Left") + "\n")
    (tmp_path / "b").write_text(line(3.0, "b", "Joining", group_id="other") + "\n")
    entries, sources = read([tmp_path / "a", tmp_path / "b"])
    assert [(one.at, one.member) for one in entries] == [
        (2.0, "a (h, 7)"),
        (3.0, "b (h, 7)"),
        (4.0, "a (h, 7)"),
    ]
    assert [(one.events, one.refused, one.looks_like) for one in sources] == [
        (2, 0, ""),
        (1, 0, ""),
    ]
    assert groups_of(entries) == ["g", "other"]
    assert [one.at for one in of_group(entries, "g")] == [2.0, 4.0]


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """A member's events keep the order of its file: those before the moment are moved to before it.

    Another member's keep their times, and so do lines that two threads wrote in another order.
    """
    (tmp_path / "a").write_text(
        "\n".join(
            [
                line(100.0, "a", "Joining"),
                line(110.0, "a", "GenerationStarted", 1),
                line(103.0, "b", "Joining"),
                line(104.0, "a", "GenerationEnded", 1),
                line(104.4, "a", "Joining"),
                line(104.2, "a", "CoordinatorFound"),
                line(1.0, "c", "Joining"),
                line(0.0, "c", "Left"),
            ]
        )
    )
    entries, _ = read([tmp_path / "a"])
    assert [(one.at, one.event, one.moved) for one in of_member(entries, "a")] == [
        (94.0, "Joining", 6.0),
        (104.0, "GenerationStarted", 6.0),
        (104.0, "GenerationEnded", 0.0),
        (104.2, "CoordinatorFound", 0.0),
        (104.4, "Joining", 0.0),
    ]
    assert [one.at for one in of_member(entries, "b")] == [103.0]
    assert [(one.at, one.moved) for one in of_member(entries, "c")] == [(0.0, 1.0), (0.0, 0.0)]


def of_member(entries: Sequence[Entry], name: str) -> list[Entry]:
    """The entries of one member."""
    return [one for one in entries if one.member.startswith(f"{name} ")]


def test_an_invalid_byte_is_replaced(tmp_path: Path) -> None:
    """A byte that is not UTF-8 costs no event: where it stands, there is the replacement."""
    text = line(1.0, "a", "Joining", message="it ? happened").encode()
    (tmp_path / "a").write_bytes(text.replace(b"?", b"\xff"))
    (entry,), _ = read([tmp_path / "a"])
    assert entry.message == "it \ufffd happened"


@pytest.mark.parametrize(
    "wrong",
    [
        line(1.0, "a", "Joining")[:-9],
        "",
        "null",
        "[1]",
        "{}",
        '{"at": "soon"}',
        line(float("nan"), "a", "Joining"),
        line(float("inf"), "a", "Joining"),
        line(1.0, "a", "Joining").replace("-1", '"one"'),
        "\x00\x00",
        "[" * 100_000,
    ],
    ids=range(11),
)
def test_what_is_no_event_is_left_out_and_counted(tmp_path: Path, wrong: str) -> None:
    """A killed process leaves a part of a line; blank lines do not count."""
    file = tmp_path / "events"
    file.write_text(f"{wrong}\n{line(1.0, 'a', 'Joining')}\n", encoding="utf-8")
    entries, (source,) = read([file])
    assert len(entries) == 1
    assert source.refused == (1 if wrong else 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b"{}"), "gzip: unpack it first"),
        (bz2.compress(b"{}"), "bzip2: unpack it first"),
        (lzma.compress(b"{}"), "xz: unpack it first"),
        (b"PK\x03\x04...", "zip archive"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"<svg xmlns", "picture"),
        (b'{"at": 1}\n', "has JSON, but it has no line"),
        (b"\x7fELF\x00", "binary"),
        (b"2026-11-25 INFO joined\n", "has no line that is an event"),
        (b"", "is empty"),
    ],
    ids=range(10),
)
def test_a_file_without_events_is_recognised(content: bytes, words: str) -> None:
    """The reader learns what the file is, and what to do with it."""
    assert words in kind_of(content)
