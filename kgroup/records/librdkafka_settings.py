"""How kgroup sets librdkafka up: each setting with its reason, and the logger for its log lines.

``consumer_settings(config)`` is what the Consumer of a member is made with. Names and meanings are
those of librdkafka's CONFIGURATION.md (2.16). librdkafka's log lines go to the logger
``kgroup.librdkafka``, with repetitions left out: while brokers are unavailable, its clients can
log the same line twenty times a second.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, final

import attrs

from kgroup.config import GroupConfig
from kgroup.records.buffer import LIBRDKAFKA_PART

LARGEST_QUEUE_KILOBYTES: Final = 2_097_151
"""The largest ``queued.max.messages.kbytes`` that librdkafka takes."""
LARGEST_FETCH: Final = 50 * 1024 * 1024
"""Bytes; librdkafka's default of ``fetch.max.bytes``."""
LARGEST_PARTITION_FETCH: Final = 1024 * 1024
"""Bytes; librdkafka's default of ``fetch.message.max.bytes``."""
SMALLEST_FETCH: Final = 64 * 1024
"""Bytes; less would make a request for every few records. A larger batch still comes whole."""

Value = str | int | float | bool


@final
@attrs.frozen
class ConsumerSetting:
    """One of librdkafka's consumer_settings.

    Attributes:
        name: librdkafka's name.
        value: what it is set to for a member's config; None leaves it out.
        reason: why.
    """

    name: str
    value: Callable[[GroupConfig], Value | None]
    reason: str


def _always(value: Value) -> Callable[[GroupConfig], Value]:
    return lambda _: value


def _queue_bytes(config: GroupConfig) -> int:
    return int(config.max_buffered_bytes * LIBRDKAFKA_PART)


SETTINGS: Final = (
    ConsumerSetting(
        "bootstrap.servers",
        lambda config: ",".join(config.bootstrap_servers),
        "The brokers to ask first.",
    ),
    ConsumerSetting(
        "group.id",
        lambda config: config.group_id,
        "librdkafka takes no Consumer without one. It never joins (nothing is subscribed) and"
        " never commits; it does look up the group's coordinator, and this is the one group that"
        " the client is certain to be allowed to.",
    ),
    ConsumerSetting("client.id", lambda config: config.client_id, "The same name on both planes."),
    ConsumerSetting(
        "client.rack",
        lambda config: config.rack_id,
        "Fetch from a replica in the same rack (KIP-392).",
    ),
    ConsumerSetting(
        "isolation.level",
        lambda config: config.isolation_level.value,
        "librdkafka's own default is read_committed; the setting goes to both planes.",
    ),
    ConsumerSetting(
        "enable.auto.commit", _always(False), "Commits are the generation's, and fenced."
    ),
    ConsumerSetting("enable.auto.offset.store", _always(False), "Nothing is stored for a commit."),
    ConsumerSetting(
        "auto.offset.reset",
        _always("error"),
        "A position out of range comes as an error, and kgroup's own policy decides.",
    ),
    ConsumerSetting("enable.partition.eof", _always(False), "The end of a log is no event here."),
    ConsumerSetting("allow.auto.create.topics", _always(False), "Reading creates no topic."),
    ConsumerSetting(
        "check.crcs", _always(True), "A damaged batch is an error, as in Kafka's Java client."
    ),
    ConsumerSetting(
        "fetch.queue.backoff.ms",
        _always(5),
        "By default librdkafka leaves a partition alone for a second whenever its queue was full,"
        " which small records make it all the time: a tenth of the speed.",
    ),
    ConsumerSetting(
        "fetch.error.backoff.ms", _always(100), "A new leader is asked soon; the default is 500."
    ),
    ConsumerSetting(
        "queued.max.messages.kbytes",
        lambda config: max(1, min(LARGEST_QUEUE_KILOBYTES, _queue_bytes(config) // 1024)),
        "Its part of max_buffered_bytes. Under assign() all partitions share one queue, so it"
        " counts for all of them together; a fetch can overshoot it.",
    ),
    ConsumerSetting(
        "queued.min.messages",
        lambda config: max(1, int(config.max_buffered_records * LIBRDKAFKA_PART)),
        "Its part of max_buffered_records: at so many queued records it stops fetching, of all"
        " partitions together like the one above.",
    ),
    ConsumerSetting(
        "fetch.message.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(LARGEST_PARTITION_FETCH, _queue_bytes(config))),
        "One fetch overshoots the queue by no more than its size. Larger batches still come.",
    ),
    ConsumerSetting(
        "fetch.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(LARGEST_FETCH, _queue_bytes(config))),
        "The same for all partitions of a broker together.",
    ),
    ConsumerSetting(
        "message.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(1_000_000, _queue_bytes(config))),
        "Limits what is produced, which is nothing; but fetch.max.bytes is raised to it.",
    ),
    ConsumerSetting(
        "topic.metadata.propagation.max.ms",
        _always(1000),
        "How long a topic may be unknown before that is an error, and told. An assigned topic was"
        " known to the group's leader, so it is gone, or about to be known; the default is 30 s.",
    ),
    ConsumerSetting(
        "max.poll.interval.ms",
        _always(86_400_000),
        "Nobody polls between generations; a member's liveness is the control plane's to watch.",
    ),
    ConsumerSetting("statistics.interval.ms", _always(0), "Nobody reads them."),
    ConsumerSetting(
        "log.connection.close",
        _always(False),
        "A lost connection comes as an error and is told as an event.",
    ),
)


def consumer_settings(config: GroupConfig) -> dict[str, Value]:
    """What a member's Consumer is made with."""
    values = ((setting.name, setting.value(config)) for setting in SETTINGS)
    return {name: value for name, value in values if value is not None}


REPEAT_INTERVAL: Final = 30.0
"""Seconds within which the same line is written once."""
MOST_REMEMBERED: Final = 1000
_DETAILS: Final = re.compile(r" \(after \d+ms .*")
"""In what the same line differs: how long it took, and how often it was left out before."""


@final
class RepeatFilter(logging.Filter):
    """Lets a line through if the same one has not gone through within ``REPEAT_INTERVAL``."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        said = _DETAILS.sub("", record.getMessage())
        if record.created - self._written.get(said, -REPEAT_INTERVAL) < REPEAT_INTERVAL:
            return False
        if len(self._written) >= MOST_REMEMBERED:
            self._written.clear()
        self._written[said] = record.created
        return True


LOGGER: Final = logging.getLogger("kgroup.librdkafka")
LOGGER.addFilter(RepeatFilter())
