"""How kgroup sets librdkafka up: each setting with its reason, and the logger for its log lines.

``consumer_settings(config)`` is what the Consumer of a member is made with. Names and meanings are
those of librdkafka's CONFIGURATION.md (2.16). librdkafka's log lines go to the logger
``kgroup.librdkafka``, with repetitions left out: while brokers are unavailable, its clients can
log the same line twenty times a second.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, final

import attrs

from kgroup.addresses import split_address
from kgroup.config import GroupConfig
from kgroup.guarded_log import GuardedLog
from kgroup.records.buffer import LIBRDKAFKA_PART
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.settings import SecurityProtocol
from kgroup.wire.librdkafka_texts import explained

LARGEST_QUEUE_KILOBYTES: Final = 2_097_151
"""The largest ``queued.max.messages.kbytes`` that librdkafka accepts."""
LARGEST_FETCH: Final = 50 * 1024 * 1024
"""Bytes; librdkafka's default of ``fetch.max.bytes``."""
LARGEST_PARTITION_FETCH: Final = 2 * 1024 * 1024
"""Bytes; twice librdkafka's default of ``fetch.message.max.bytes``."""
SMALLEST_FETCH: Final = 64 * 1024
"""Bytes; with less, every few records cost a request. A larger batch still arrives whole."""

_SERVERS: Final = "bootstrap.servers"

Value = str | int | float | bool


@final
@attrs.frozen
class ConsumerSetting:
    """One of librdkafka's consumer_settings.

    Attributes:
        name: librdkafka's name.
        value: computes the value from a member's config; None leaves the setting out.
        reason: why it has this value.
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
        _SERVERS,
        lambda config: ",".join(config.bootstrap_servers),
        "The brokers to connect to first. A Consumer that is made later, in place of another one,"
        " gets the brokers that the control plane knows by then, too.",
    ),
    ConsumerSetting(
        "group.id",
        lambda config: config.group_id,
        "librdkafka makes no Consumer without one. It never joins (nothing is subscribed) and"
        " never commits. It does look up the group's coordinator, and this is the one group for"
        " which the client certainly has permission.",
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
        "enable.auto.commit",
        _always(False),
        "Only the generation commits, and its commits are fenced.",
    ),
    ConsumerSetting(
        "enable.auto.offset.store", _always(False), "librdkafka has no offsets to commit."
    ),
    ConsumerSetting(
        "auto.offset.reset",
        _always("error"),
        "A position that is out of range arrives as an error, so that kgroup's policy decides.",
    ),
    ConsumerSetting("enable.partition.eof", _always(False), "kgroup does not use this event."),
    ConsumerSetting("allow.auto.create.topics", _always(False), "Reading must not create topics."),
    ConsumerSetting(
        "check.crcs", _always(True), "A corrupt batch is an error, as in Kafka's Java client."
    ),
    ConsumerSetting(
        "fetch.queue.backoff.ms",
        _always(5),
        "By default librdkafka stops fetching a partition for a second whenever its queue was full."
        " Small records fill it all the time, so that reading has a tenth of the speed.",
    ),
    ConsumerSetting(
        "fetch.wait.max.ms",
        _always(100),
        "For so long a broker holds back a Fetch request for which it has no records, and a"
        " partition that is new to the Consumer is only in the next one. In a topic without traffic"
        " the first record of an added partition came after 0.79 s with the default of 500, and"
        " after 0.16 s with 100 (medians of 16, benchmarks/first_records.py). An idle member sends"
        " ten requests a second to a broker in place of two; its own CPU time did not change"
        " measurably (0.74 s a minute). With less, the brokers of large groups would have much to"
        " answer: at 100, a thousand idle members that read from one broker each send it 10,000"
        " requests a second.",
    ),
    ConsumerSetting(
        "socket.timeout.ms",
        lambda config: min(300_000, max(30_000, int(config.request_timeout * 1000))),
        "So long a response may take to arrive as a whole. A broker that is frozen, or whose"
        " machine is gone, answers nothing and closes nothing. With the default of 60 s, its"
        " partitions are not read for so long, although other brokers lead them by then. Java's"
        " client waits for 30 s too. With less, a slow network could not transfer a large fetch in"
        " time, and librdkafka would request it again and again.",
    ),
    ConsumerSetting(
        "fetch.error.backoff.ms",
        _always(100),
        "The default of 500 delays the first fetch from a new leader.",
    ),
    ConsumerSetting(
        "queued.max.messages.kbytes",
        lambda config: max(1, min(LARGEST_QUEUE_KILOBYTES, _queue_bytes(config) // 1024)),
        "librdkafka's part of max_buffered_bytes. Under assign() all partitions share one queue, so"
        " this limits all of them together; one fetch can exceed it.",
    ),
    ConsumerSetting(
        "queued.min.messages",
        lambda config: max(1, int(config.max_buffered_records * LIBRDKAFKA_PART)),
        "librdkafka's part of max_buffered_records: it stops fetching when all partitions together"
        " have so many records in its queue.",
    ),
    ConsumerSetting(
        "fetch.message.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(LARGEST_PARTITION_FETCH, _queue_bytes(config))),
        "One fetch exceeds the queue by no more than its size. Larger batches still arrive."
        " The readers of single partitions take turns after each partition of a fetch. With records"
        " of 1 KB and librdkafka's default of 1 MB that costs a tenth of the speed. With 4 MB, what"
        " is read is no longer in the processor's cache, and costs more CPU time"
        " (benchmarks/records).",
    ),
    ConsumerSetting(
        "fetch.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(LARGEST_FETCH, _queue_bytes(config))),
        "The same limit for one fetch of all partitions of a broker.",
    ),
    ConsumerSetting(
        "message.max.bytes",
        lambda config: max(SMALLEST_FETCH, min(1_000_000, _queue_bytes(config))),
        "It limits what is produced, which is nothing, but it is also the least fetch.max.bytes.",
    ),
    ConsumerSetting(
        "topic.metadata.propagation.max.ms",
        _always(1000),
        "How long a topic may be unknown before that is reported as an error; the default is 30 s."
        " The group's leader knew every assigned topic, so an unknown one was deleted or will be"
        " known soon.",
    ),
    ConsumerSetting(
        "max.poll.interval.ms",
        _always(86_400_000),
        "Between generations there may be no polls; the control plane watches the member's"
        " liveness.",
    ),
    ConsumerSetting(
        "reconnect.backoff.ms",
        lambda config: 20 if config.security.protocol is SecurityProtocol.PLAINTEXT else 1000,
        "Half of it also passes between the connection to a bootstrap address, which librdkafka"
        " gives up once it knows the brokers, and the next one: with the default of 100, every"
        " other fresh member got its first record after 57 ms in place of 20. While some broker is"
        " connected, librdkafka doubles the wait for another one each time, up to 10 s. While none"
        " is, it goes through all of them, one every half of the wait and at least every 12 ms,"
        " whatever reconnect.backoff.max.ms is: with 20 that is eighty attempts in a second, with"
        " 100 twenty. In plain text one costs little; a TLS handshake or a login costs much."
        " A connection that was open for longer is opened again at once.",
    ),
    ConsumerSetting("statistics.interval.ms", _always(0), "The statistics are not used."),
    ConsumerSetting(
        "log.connection.close",
        _always(False),
        "A lost connection arrives as an error and is reported as an event.",
    ),
)


def consumer_settings(config: GroupConfig) -> dict[str, Value]:
    """Return the settings of a member's Consumer."""
    values = ((setting.name, setting.value(config)) for setting in SETTINGS)
    ours = {name: value for name, value in values if value is not None}
    return ours | librdkafka_settings(config.security)


def with_known(settings: Mapping[str, Any], addresses: Collection[str]) -> dict[str, str]:
    """The setting of the brokers to connect to first, with further addresses.

    A broker can send any text as the host of another one. What is no address is left out:
    librdkafka would take a comma for the end of one, and refuse other texts.
    """
    first = str(settings[_SERVERS]).split(",")
    further = sorted(one for one in addresses if one not in first and _is_address(one))
    return {_SERVERS: ",".join([*first, *further])}


def _is_address(text: str) -> bool:
    try:
        split_address(text)
    except ValueError:
        return False
    return True


REPEAT_INTERVAL: Final = 30.0
"""Seconds within which a line is logged only once."""
MOST_REMEMBERED: Final = 1000
_DETAILS: Final = re.compile(r" \(after \d+ms .*")
"""The part in which repetitions of a line differ: its duration, and how often it was suppressed."""


@final
class RepeatFilter(logging.Filter):
    """Suppresses a line that was logged within the last ``REPEAT_INTERVAL`` seconds.

    Args:
        now: a clock in seconds. The times of records would not do: if the machine's clock is set
            back by an hour, lines that were logged before would be suppressed for that hour.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged."""
        text = _DETAILS.sub("", record.getMessage())
        now, logged_at = self._now(), self._logged_at.get(text)
        if logged_at is not None and now - logged_at < REPEAT_INTERVAL:
            return False
        if len(self._logged_at) >= MOST_REMEMBERED:
            self._logged_at.clear()
        self._logged_at[text] = now
        return True


_THREAD_END: Final = "]: "
"""Between the thread of a line, which librdkafka's clients log, and its text."""


@final
class ExplainingFilter(logging.Filter):
    """Replaces what misleads in a line, as in the events about the same failure."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the line, if it misleads; all are logged."""
        begins, mark, text = record.getMessage().partition(_THREAD_END)
        if (said := explained(text)) != text:
            record.msg, record.args = f"{begins}{mark}{said}", ()
        return True


LOGGER: Final = logging.getLogger("kgroup.librdkafka")
LOGGER.addFilter(RepeatFilter())
LOGGER.addFilter(ExplainingFilter())
LOG: Final = GuardedLog(LOGGER)
"""The way to it for librdkafka, whose callbacks would raise what the program's log raises."""
