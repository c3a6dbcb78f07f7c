"""`group_metadata`: the bytes that name a generation to a producer equal librdkafka's own."""

from __future__ import annotations

import attrs
import pytest
from confluent_kafka import Consumer
from hypothesis import given, settings
from hypothesis import strategies as st

from kgroup.errors import UsageError
from kgroup.generation import commits
from kgroup.generation.commits import group_metadata
from kgroup.types import Membership
from tests.generation.fakes import MEMBERSHIP

#: NUL ends a text in these bytes, and librdkafka's configuration takes no blanks before a value.
TEXT = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda text: text == text.strip())


def of_librdkafka(group_id: str, instance: str | None) -> bytes:
    """The bytes of a consumer that never connects, with no generation and no member id."""
    static = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"group.id": group_id, "bootstrap.servers": "", **static})
    try:
        return bytes(consumer.consumer_group_metadata())
    finally:
        consumer.close()


def unconnected(group_id: str, instance: str | None) -> Membership:
    """The membership of such a consumer."""
    return attrs.evolve(
        MEMBERSHIP,
        group_id=group_id,
        group_instance_id=instance,
        generation_id=-1,
        member_id="",
    )


@settings(max_examples=15, deadline=None)
@given(group_id=TEXT, instance=st.none() | TEXT)
def test_the_bytes_equal_librdkafkas(group_id: str, instance: str | None) -> None:
    """For any group and instance id, each byte is the same."""
    assert group_metadata(unconnected(group_id, instance)) == of_librdkafka(group_id, instance)


def test_generation_and_member_are_in_their_places() -> None:
    """The generation id comes before the group, the member id after it."""
    assert group_metadata(MEMBERSHIP) == b"CGMDv2:" + b"\7\0\0\0" + b"g\0" + b"m-1\0" + b"\1"
    static = attrs.evolve(MEMBERSHIP, group_instance_id="one", generation_id=2**31 - 1)
    assert group_metadata(static) == (
        b"CGMDv2:" + b"\xff\xff\xff\x7f" + b"g\0" + b"m-1\0" + b"\0one\0"
    )


def test_another_format_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before a producer is given bytes that it would misread."""
    commits._check_format.cache_clear()
    monkeypatch.setattr(commits, "_MAGIC", b"CGMDv3:")
    with pytest.raises(UsageError, match="another format .*confluent-kafka; install one from 2.16"):
        group_metadata(MEMBERSHIP)
    monkeypatch.undo()
    group_metadata(MEMBERSHIP)
