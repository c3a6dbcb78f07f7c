"""The topics in a consumer's metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.broker.groups.subscribed_topics import subscribed_topics
from tests.broker.groups.harness import subscription


@given(topics=st.lists(st.text(max_size=20), max_size=5), tail=st.binary(max_size=8))
def test_topics_are_read(topics: list[str], tail: bytes) -> None:
    """Topics are read whatever follows them: user data, and fields of later versions."""
    assert subscribed_topics(subscription(*topics) + tail) == tuple(topics)


def test_more_topics_than_asked_for_are_not_read() -> None:
    """The count at the beginning decides, before any name is read."""
    assert subscribed_topics(subscription("t1", "t2"), 2) == ("t1", "t2")
    assert subscribed_topics(subscription("t1", "t2"), 1) is None


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_version_does_not_matter(version: int) -> None:
    """Every version begins as version 0 does."""
    metadata = version.to_bytes(2, "big") + subscription("t1")[2:]
    assert subscribed_topics(metadata) == ("t1",)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\0\0\0\1\0\1\xff",
        subscription("t1", "t2")[:-8],
        subscription("t1")[:-4],
        subscription("t1")[:-1],
        subscription("t1", user_data="abc")[:-1],
    ],
)
def test_other_bytes_are_no_subscription(metadata: bytes) -> None:
    """Bytes that end too soon, count below zero or are no UTF-8 give None."""
    assert subscribed_topics(metadata) is None


@given(st.binary(max_size=40))
def test_no_bytes_raise(metadata: bytes) -> None:
    """Arbitrary bytes give topics or None."""
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
