"""The demo's text: its lines, and how words are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgroup.cli.demo.text import lines_of, own_sources, words_of


def test_lines_of_several_files_in_their_order(tmp_path: Path) -> None:
    """Lines have no line ends, and empty lines count."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a b\n\nc")
    other.write_bytes(b"d\xff\n")
    assert lines_of([one, other], 4) == ["a b", "", "c", "d\N{REPLACEMENT CHARACTER}"]
    assert lines_of([one, other], 2) == ["a b", ""]


def test_short_files_are_read_again(tmp_path: Path) -> None:
    """If more lines are wanted than there are, the files are read again from the start."""
    file = tmp_path / "short"
    file.write_text("a\nb\n")
    assert lines_of([file], 5) == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("contents", [[], [""]])
def test_no_line_at_all_is_refused(tmp_path: Path, contents: list[str]) -> None:
    """The error names the empty files, or says that there is no file."""
    files = [tmp_path / "empty" for _ in contents]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    with pytest.raises(ValueError, match="there is no line of text in .*(empty|no file)$"):
        lines_of(files, 5)


def test_the_default_text_is_long_enough() -> None:
    """Python's own modules have more lines than the demo takes by default."""
    assert len(set(lines_of(own_sources(), 50_000))) > 10_000


def test_words_are_counted_in_lower_case() -> None:
    """A word consists of letters, digits and underscores."""
    assert words_of("The_end, the END; x1!") == {"the_end": 1, "the": 1, "end": 1, "x1": 1}
