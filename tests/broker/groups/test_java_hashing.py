"""Java's hash of a string, and the order of keys in its HashMap."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.java_hashing import hash_map_order, shard_of, string_hash, utf16_length

PANGRAM = "The quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("range", 108280125), ("\U0001f600", 1772899)],
)
def test_string_hash(text: str, value: int) -> None:
    """The hash is Java's, over UTF-16 units."""
    assert string_hash(text) == value


def test_hash_wraps_at_32_bits() -> None:
    """Java gives -609428141 for this long text."""
    assert string_hash(PANGRAM) == -609428141 & 0xFFFFFFFF


def test_range_comes_before_other_assignors() -> None:
    """A HashMap yields range before roundrobin and cooperative-sticky in any order of insertion."""
    names = ["cooperative-sticky", "roundrobin", "range"]
    assert hash_map_order(names)[0] == "range"
    assert hash_map_order(reversed(names))[0] == "range"


def test_order_within_a_slot_is_that_of_insertion() -> None:
    """Keys with the same hash keep the order of insertion."""
    assert string_hash("Aa") == string_hash("BB")
    assert hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]


def test_table_grows_with_its_keys() -> None:
    """With more than 12 keys the table has 32 slots, and five bits give the order."""
    names = [chr(code) for code in range(ord("a"), ord("a") + 13)]
    assert hash_map_order(reversed(names)) == names
    assert hash_map_order(["p", "a"]) == ["p", "a"]


def test_shard_is_the_absolute_hash_modulo_shards() -> None:
    """The absolute value of a negative hash counts; the most negative hash counts as 0."""
    assert shard_of("hello", 50) == 99162322 % 50
    assert shard_of(PANGRAM, 50) == 609428141 % 50
    assert string_hash("polygenelubricants") == 1 << 31
    assert shard_of("polygenelubricants", 50) == 0


def test_length_counts_surrogates() -> None:
    """A character beyond the first plane is two units long, as in Java."""
    assert utf16_length("a\U0001f600") == 3


def test_characters_beyond_255_cost_nothing() -> None:
    """The shard of a longer id is that of its beginning, and so is the place in a HashMap."""
    name = PANGRAM * 40
    assert shard_of(name[:255], 50) == string_hash(name[:255]) % 2**31 % 50
    assert shard_of(name, 50) == shard_of(name[:255] + "other", 50) == shard_of(name[:255], 50)
    assert hash_map_order([name, name[:255]]) == [name, name[:255]]
    assert hash_map_order([name[:255], name]) == [name[:255], name]
