"""librdkafka's settings, and the filter of its log lines."""

from __future__ import annotations

import logging
from typing import Any, Final

import confluent_kafka
import pytest

from kgroup.config import GroupConfig
from kgroup.records.librdkafka_settings import (
    LOGGER,
    MOST_REMEMBERED,
    REPEAT_INTERVAL,
    SETTINGS,
    ExplainingFilter,
    RepeatFilter,
    consumer_settings,
    with_known,
)

TOO_LARGE: Final = (
    "Receive failed: Invalid response size 352518912 (0..100000000): increase"
    " receive.message.max.bytes"
)


def config(**more: Any) -> GroupConfig:
    """The settings of a member's Consumer."""
    return GroupConfig(group_id="g", bootstrap_servers="localhost:1", topics=["t"], **more)


@pytest.mark.parametrize("size", [1024, 64 * 1024, 64 * 1024 * 1024, 2**41])
@pytest.mark.parametrize("records", [1, 10_000_000])
def test_librdkafka_accepts_the_settings(size: int, records: int) -> None:
    """A Consumer can be made with the smallest and the largest buffers."""
    made = consumer_settings(
        config(max_buffered_bytes=size, max_buffered_records=records, rack_id="r")
    )
    confluent_kafka.Consumer({**made, "log_level": 0}).close()


def test_half_of_the_buffer_is_librdkafkas() -> None:
    """librdkafka's queue gets its part of the limits, in records and in kilobytes."""
    made = consumer_settings(config(max_buffered_bytes=8 * 1024 * 1024, max_buffered_records=400))
    assert made["queued.max.messages.kbytes"] == 4096
    assert made["queued.min.messages"] == 200


def test_a_new_partition_of_a_quiet_topic_waits_for_a_short_fetch() -> None:
    """A broker holds an empty Fetch back for a tenth of a second, not for the default's half."""
    assert consumer_settings(config())["fetch.wait.max.ms"] == 100


@pytest.mark.parametrize(
    ("request_timeout", "milliseconds"), [(0.5, 30_000), (45.0, 45_000), (9000.0, 300_000)]
)
def test_a_fetch_without_a_response_is_given_up(request_timeout: float, milliseconds: int) -> None:
    """After half of the default's time, or the program's own if that is longer."""
    made = consumer_settings(config(request_timeout=request_timeout))
    assert made["socket.timeout.ms"] == milliseconds
    confluent_kafka.Consumer({**made, "log_level": 0}).close()


def test_what_the_member_chose_reaches_the_data_plane() -> None:
    """Isolation level, client id and rack are passed on; a missing rack is left out."""
    made = consumer_settings(config(isolation_level="read_committed", client_id="c", rack_id="r1"))
    assert (made["isolation.level"], made["client.id"], made["client.rack"]) == (
        "read_committed",
        "c",
        "r1",
    )
    assert "client.rack" not in consumer_settings(config())


def test_librdkafka_neither_commits_nor_resets() -> None:
    """librdkafka never commits and never chooses a position."""
    made = consumer_settings(config())
    assert made["enable.auto.commit"] is False
    assert made["enable.auto.offset.store"] is False
    assert made["auto.offset.reset"] == "error"


def test_every_setting_says_why() -> None:
    """Each setting occurs once, with a reason."""
    assert all(setting.reason for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


REFUSED = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


def written(lines: list[tuple[float, str]]) -> list[float]:
    """The times among these at which a line was logged."""
    clock = iter([time for time, _ in lines])
    seldom, through = RepeatFilter(lambda: next(clock)), []
    for time, text in lines:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s [c] %s", ("FAIL", text), None)
        record.created = -time  # the machine's clock may be set back
        if seldom.filter(record):
            through.append(time)
    return through


def test_a_repeated_line_is_suppressed() -> None:
    """A line that differs in duration only is suppressed; one of another broker is not."""
    lines = [
        (0.0, f"{REFUSED} (after 0ms in state CONNECT)"),
        (0.1, f"{REFUSED} (after 7ms in state CONNECT, 5 identical error(s) suppressed)"),
        (0.2, f"{REFUSED.replace('9092', '9093')} (after 0ms in state CONNECT)"),
        (REPEAT_INTERVAL - 1, REFUSED),
        (REPEAT_INTERVAL, REFUSED),
    ]
    assert written(lines) == [0.0, 0.2, REPEAT_INTERVAL]


def test_the_filter_s_memory_has_a_bound() -> None:
    """Different lines are all logged, and only some of them are remembered."""
    lines = [(0.0, f"line {number}") for number in range(3 * MOST_REMEMBERED)]
    assert len(written(lines)) == len(lines)
    again = [(1.0, "line 0"), (2.0, "line 0")]
    assert len(written([*lines[:MOST_REMEMBERED], *again])) == MOST_REMEMBERED
    assert len(written([*lines[: MOST_REMEMBERED + 1], *again])) == MOST_REMEMBERED + 2


def test_the_logger_has_the_filter(caplog: pytest.LogCaptureFixture) -> None:
    """Every line of the logger passes the filter."""
    for _ in range(5):
        LOGGER.error("%s of this test", REFUSED)
    assert len([one for one in caplog.messages if "of this test" in one]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{TOO_LARGE} (after 0ms in state APIVERSION_QUERY)",
            "the answer is no response of a Kafka broker. The answer is a TLS record: ",
        ),
        ("100 % of this stays", "100 % of this stays"),
    ],
)
def test_a_line_that_misleads(text: str, expected: str) -> None:
    """It says what the event about the failure says; other lines stay as they are."""
    thread = "[thrd:[::1]:9092/bootstrap]: [::1]:9092/bootstrap: "
    line = ("FAIL", f"{thread}{text}")
    record = logging.LogRecord("x", logging.ERROR, "", 0, "%s [c] %s", line, None)
    assert ExplainingFilter().filter(record)
    assert record.getMessage().startswith(f"FAIL [c] {thread}{expected}")
    assert "receive.message.max.bytes" not in record.getMessage()


def test_a_later_consumer_gets_the_addresses_that_are_known_by_then() -> None:
    """They follow the bootstrap servers, each once, and without those that are no addresses."""
    named = GroupConfig(group_id="g", bootstrap_servers="b:1,a:1", topics=["t"])
    made = consumer_settings(named)
    known = ["d:1", "b:1", "[::1]:5", "c:1", "x,y:1", "SSL://e:1", "\0:1", "f" * 300 + ":1"]
    assert with_known(made, known) == {"bootstrap.servers": "b:1,a:1,[::1]:5,c:1,d:1"}
    assert with_known(made, ()) == {"bootstrap.servers": "b:1,a:1"}
