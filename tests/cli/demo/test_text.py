"""Lines and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgroup.cli.demo.text import lines_of, own_sources, words_of


def test_lines_of_several_files_in_their_order(tmp_path: Path) -> None:
    """Line ends are no part of lines; empty lines are lines."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a b\n\nc")
    other.write_bytes(b"d\xff\n")
    assert lines_of([one, other], 4) == ["a b", "", "c", "d\N{REPLACEMENT CHARACTER}"]
    assert lines_of([one, other], 2) == ["a b", ""]


def test_short_files_are_read_again(tmp_path: Path) -> None:
    """From the top, as often as it takes."""
    file = tmp_path / "short"
    file.write_text("a\nb\n")
    assert lines_of([file], 5) == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("contents", [[], [""]])
def test_no_line_at_all_is_refused(tmp_path: Path, contents: list[str]) -> None:
    """An empty file is named; so is that there is none."""
    files = [tmp_path / "empty" for _ in contents]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    with pytest.raises(ValueError, match="there is no line of text in .*(empty|no file)$"):
        lines_of(files, 5)


def test_python_brings_lines_enough() -> None:
    """The library's own modules have more lines than the demo takes by default."""
    assert len(set(lines_of(own_sources(), 50_000))) > 10_000


def test_words_are_counted_in_lower_case() -> None:
    """Underscores and digits belong to words, nothing else does."""
    assert words_of("The_end, the END; x1!") == {"the_end": 1, "the": 1, "end": 1, "x1": 1}
