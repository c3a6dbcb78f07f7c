"""Patterns match as in Python, and no pattern takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.broker.regular_expressions import Pattern
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\.", r"\w", "-", "[]a]"])
TIMES = st.sampled_from(["", "", "*", "+", "?"])
ALTERNATIVES = st.lists(st.tuples(ATOMS, TIMES).map("".join), max_size=6).map("".join)


@given(
    pattern=st.lists(ALTERNATIVES, min_size=1, max_size=3).map("|".join),
    text=st.text(alphabet="ab.-]", max_size=8),
)
def test_patterns_match_as_in_python(pattern: str, text: str) -> None:
    """If both accept a pattern, both give the same result for a text."""
    assert Pattern(pattern).matches(text) == (re.fullmatch(pattern, text, re.DOTALL) is not None)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "a{9}", "a**", "*", "[", "a\\", "(?=a)", r"\1", "a" * 201, "^a", "[b-a]", "[+--]"],
)
def test_unsupported_patterns_are_refused(pattern: str) -> None:
    """Groups, counts, look-around, and invalid patterns are refused."""
    with pytest.raises(RequestError) as refused:
        Pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern", ["[[a]", "[b&&a]", "[b||a]", "[b~~a]", r"[\[a]", r"[\\[a]", "[a[]"]
)
def test_signs_in_a_class_are_characters(pattern: str) -> None:
    """Signs for which Python warns of future set operations are plain characters here."""
    made = Pattern(pattern)
    assert made.matches("a")
    assert not made.matches("c")
    assert all(made.matches(sign) for sign in "[&|~" if sign in pattern[1:])


@pytest.mark.parametrize("pattern", ["a*" * 99 + "b", "a*" + "b*" * 98 + "c", "a*b|" * 49 + "a*b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Patterns that take Python years take at most eight steps for each character."""
    made = Pattern(pattern)
    assert not made.matches("a" * 10_000)
    assert len(made._skips) <= 8
