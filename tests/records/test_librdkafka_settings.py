"""What librdkafka is told."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from kgroup.config import GroupConfig
from kgroup.records.librdkafka_settings import SETTINGS, settings


def config(**more: Any) -> GroupConfig:
    """A member's settings."""
    return GroupConfig(group_id="g", bootstrap_servers="localhost:1", topics=["t"], **more)


@pytest.mark.parametrize("size", [1024, 64 * 1024, 64 * 1024 * 1024, 2**41])
@pytest.mark.parametrize("records", [1, 10_000_000])
def test_librdkafka_takes_them(size: int, records: int) -> None:
    """A Consumer can be made with the smallest and the largest buffers."""
    made = settings(config(max_buffered_bytes=size, max_buffered_records=records, rack_id="r"))
    confluent_kafka.Consumer({**made, "log_level": 0}).close()


def test_half_of_the_buffer_is_librdkafkas() -> None:
    """Its queue is bounded by its part in records and in kilobytes."""
    made = settings(config(max_buffered_bytes=8 * 1024 * 1024, max_buffered_records=400))
    assert made["queued.max.messages.kbytes"] == 4096
    assert made["queued.min.messages"] == 200


def test_what_the_member_chose_reaches_the_data_plane() -> None:
    """Isolation, client id and rack are passed on; no rack is left out."""
    made = settings(config(isolation_level="read_committed", client_id="c", rack_id="r1"))
    assert (made["isolation.level"], made["client.id"], made["client.rack"]) == (
        "read_committed",
        "c",
        "r1",
    )
    assert "client.rack" not in settings(config())


def test_nothing_is_committed_or_reset_behind_the_groups_back() -> None:
    """librdkafka neither commits nor decides where to read."""
    made = settings(config())
    assert made["enable.auto.commit"] is False
    assert made["enable.auto.offset.store"] is False
    assert made["auto.offset.reset"] == "error"


def test_every_setting_says_why() -> None:
    """The table has a reason for each, and each once."""
    assert all(setting.reason for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
