"""Attempts to write a dead letter, with a producer that reports what the test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kgroup.dead_letters import DeadLetter, DeadLetters, headers_for
from kgroup.errors import ArgumentError, DeadLetterError, UsageError
from kgroup.retry_policy import DELIVERIES
from kgroup.testing.admin import end_offsets
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.types import TopicPartition

AWAY = KafkaError(KafkaError._MSG_TIMED_OUT)
FORBIDDEN = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
FAILED = TopicPartition("failed", 0)
NO_REPORT = object()
"""An outcome: the producer keeps the record, and reports nothing."""

Report = Callable[[object, object], None]


class Scripted:
    """A producer: each record that it is given meets the next outcome, and succeeds after them.

    An outcome is an exception, which ``produce`` raises, or what is reported of the record: an
    error, or the record as it was written.
    """

    def __init__(self, *outcomes: object) -> None:
        self.written: list[tuple[str, bytes | None]] = []
        self.raised_by_callbacks: list[Exception] = []
        """What callbacks of the program raise, one in each poll; nothing is reported in these."""
        self._outcomes = list(outcomes)
        self._reports: list[tuple[Report, object]] = []
        self.late: list[Report] = []
        self.topics: object = AWAY
        """The topics that there are, or why the brokers do not say."""
        self.address: tuple[str, int] = ("elsewhere", 9092)
        """Of its broker."""

    def list_topics(self, *, timeout: float) -> object:
        """As a ``confluent_kafka.Producer``; a topic that it is asked for may be created."""
        assert timeout > 0
        if isinstance(self.topics, KafkaError):
            raise KafkaException(self.topics)
        host, port = self.address
        brokers = {0: SimpleNamespace(host=host, port=port)}
        return SimpleNamespace(topics=self.topics, brokers=brokers)

    def produce(self, topic: str, *, value: bytes | None, on_delivery: Report, **_: object) -> None:
        """As a ``confluent_kafka.Producer``."""
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        self.written.append((topic, value))
        if outcome is NO_REPORT:
            self.late.append(on_delivery)
        else:
            self._reports.append((on_delivery, outcome))

    def poll(self, _: float) -> int:
        """As a ``confluent_kafka.Producer``."""
        if self.written and self.raised_by_callbacks:
            raise self.raised_by_callbacks.pop(0)
        reports, self._reports = self._reports, []
        for report, outcome in reports:
            is_error = outcome is None or isinstance(outcome, KafkaError)
            report(*((outcome, None) if is_error else (None, outcome)))
        return len(reports)


def record(**others: object) -> Any:
    """A record of some partition."""
    values = {"topic": "orders", "partition": 3, "offset": 7, "value": b"v", "key": None}
    values |= {"headers": None, "timestamp": (1, 5), **others}
    return SimpleNamespace(**{name: _giving(value) for name, value in values.items()})


def _giving(value: object) -> Callable[[], object]:
    return lambda: value


UNCONFIRMED = record(topic="failed", offset=None)
"""As librdkafka reports a record if it only concludes that the brokers have it."""


def letters_by(producer: Scripted, timeout: float = 30.0) -> DeadLetters:
    """A topic for them."""
    given: Any = producer
    return DeadLetters(given, "failed", timeout=timeout)


def letter_by(producer: Scripted, timeout: float = 30.0) -> DeadLetter:
    """A dead letter of that record."""
    return letters_by(producer, timeout).letter(record(), ValueError("x"), 2, "g")


PASSING: Sequence[tuple[object, str]] = [
    (AWAY, "Local: Message timed out (_MSG_TIMED_OUT)"),
    (KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), "(NOT_ENOUGH_REPLICAS)"),
    (KafkaException(KafkaError(KafkaError._TRANSPORT)), "(_TRANSPORT)"),
    (BufferError("Local: Queue full"), "Local: Queue full"),
    (UNCONFIRMED, "no broker has said at which offset"),
]


@pytest.mark.parametrize(("outcome", "reason"), PASSING)
def test_a_failure_that_passes(outcome: object, reason: str) -> None:
    """The attempt says why it failed, and the next one writes the record."""
    producer = Scripted(outcome)
    letter = letter_by(producer)
    assert reason in (letter.send() or "")
    assert letter.send() is None
    assert letter.attempts == 2
    assert producer.written[-1] == ("failed", b"v")


def test_words_of_a_broker_that_are_not_utf_8() -> None:
    """A broker's words, in an error or in a line for the producer's logger, end no program."""

    def unreadable() -> str:
        return b"it said \xff".decode()

    error: Any = SimpleNamespace(
        code=lambda: KafkaError._TRANSPORT,
        name=lambda: "_TRANSPORT",
        fatal=lambda: False,
        str=unreadable,
    )
    letter = letter_by(Scripted(KafkaException(error)))
    assert letter.send() == "topic 'failed': it said \\xff (_TRANSPORT)"

    class Reporting(Scripted):
        def produce(self, *args: Any, on_delivery: Report, **more: Any) -> None:
            super().produce(*args, on_delivery=on_delivery, **more)
            on_delivery(None, record())

    producer: Any = Reporting()
    # As librdkafka's: no code of Python raises it.
    producer.poll = partial(next, map(bytes.decode, repeat(b"\xff")))
    assert letter_by(producer).send() is None

    class Wrapper(Reporting):
        def poll(self, seconds: float) -> int:
            return int(producer.poll(seconds))

    assert letter_by(Wrapper()).send() is None
    producer.poll = lambda _: unreadable()  # as of a callback of the program
    with pytest.raises(UnicodeDecodeError):
        letter_by(producer).send()


def test_a_failure_that_does_not_pass_in_time() -> None:
    """There are so many attempts and no more; the error has their number and the record's."""
    letter = letter_by(Scripted(*[AWAY] * DELIVERIES))
    for _ in range(DELIVERIES - 1):
        assert letter.send() is not None
    with pytest.raises(DeadLetterError) as raised:
        letter.send()
    assert (
        "the record at orders-3 offset 7 could not be written to topic 'failed' in 5 attempts"
        in str(raised.value)
    )
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "outcome",
    [
        FORBIDDEN,
        KafkaException(FORBIDDEN),
        KafkaError(KafkaError.MSG_SIZE_TOO_LARGE),
        KafkaError(KafkaError._UNKNOWN_TOPIC),
        KafkaError(KafkaError._MSG_TIMED_OUT, "the producer is broken", True),
    ],
)
def test_a_failure_that_would_come_again(outcome: object) -> None:
    """It is raised at once; so is one after which the producer cannot be used."""
    letter = letter_by(Scripted(outcome))
    with pytest.raises(
        DeadLetterError, match=r"the record at orders-3 offset 7.*It is not committed"
    ):
        letter.send()
    assert letter.attempts == 1


def test_a_topic_that_the_producer_may_not_write() -> None:
    """The error says which permission is missing."""
    with pytest.raises(DeadLetterError) as raised:
        letter_by(Scripted(FORBIDDEN)).send()
    assert "grant the user WRITE on topic 'failed', or correct its name" in str(raised.value)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,  # it was deleted while the producer knew it
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_a_topic_that_does_not_exist(code: int) -> None:
    """The error says how to create it."""
    with pytest.raises(DeadLetterError) as raised:
        letter_by(Scripted(KafkaError(code))).send()
    assert "create topic 'failed', if its name is right: kafka-topics.sh" in str(raised.value)
    assert "--create --topic failed. It is not committed" in str(raised.value)


@pytest.mark.parametrize(
    ("topics", "nearest"),
    [
        ({"failed": 1}, None),
        ({"orders": 1}, ""),
        ({"orders": 1, "faild": 1}, "faild"),
        (AWAY, None),
    ],
)
def test_a_look_for_the_topic(topics: object, nearest: str | None) -> None:
    """A topic that is not there is an event, with a name like it; what is not known is none."""
    producer = Scripted()
    producer.topics = topics
    letters = letters_by(producer)
    unchecked = [letters.unchecked]
    found = letters.missing()
    unchecked.append(letters.unchecked)
    assert unchecked == [True, False]
    assert (None if found is None else found(group_id="g").nearest) == nearest
    assert letters.missing() is None


def test_a_topic_that_the_group_reads_is_not_suggested() -> None:
    """Whoever follows that would have the group read its own dead letters."""
    producer = Scripted()
    producer.topics = {"fail": None}
    for read in ("fail", re.compile("f.*l")):
        make = letters_by(producer).missing((read,))
        assert make is not None
        assert make(group_id="g").nearest == ""
    make = letters_by(producer).missing((re.compile("fai"),))
    assert make is not None
    assert make(group_id="g").nearest == "fail"


def test_a_record_that_the_producer_still_has() -> None:
    """It is not given to the producer again, which would write it twice; its report is awaited."""
    producer = Scripted(NO_REPORT)
    letter = letter_by(producer, timeout=0.0)
    assert letter.send() == "topic 'failed': it was not confirmed within 0 s"
    (report,) = producer.late
    report(None, None)
    assert letter.send() is None
    assert len(producer.written) == 1


def test_a_callback_that_raises() -> None:
    """The record is not given to the producer again, which still has it; its report is awaited."""
    producer = Scripted()
    away = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    producer.raised_by_callbacks = [KafkaException(away), KafkaException(away)]
    letter = letter_by(producer)
    for _ in range(2):
        assert "_ALL_BROKERS_DOWN" in (letter.send() or "")
    assert letter.send() is None
    assert len(producer.written) == 1


@pytest.mark.parametrize("raised", [KafkaException("the billing is closed"), KafkaException()])
def test_an_exception_of_the_programs_own_words(raised: Exception) -> None:
    """It ends the attempts, and is in the error."""
    producer = Scripted()
    producer.raised_by_callbacks = [raised]
    with pytest.raises(DeadLetterError, match=f"KafkaException.*{raised}"):
        letter_by(producer).send()


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_record_that_is_too_large(code: int) -> None:
    """It would stop its partition at each restart; the error says which limits to raise."""
    with pytest.raises(DeadLetterError) as raised:
        letter_by(Scripted(KafkaException(KafkaError(code)))).send()
    assert "raise message.max.bytes of the producer, and max.message.bytes of topic 'failed'" in (
        str(raised.value)
    )


def test_a_producer_for_asyncio_is_refused() -> None:
    """Its methods return coroutines, which nothing would await in a thread."""

    class ForAsyncio(Scripted):
        async def produce(self, *_: object, **__: object) -> None:  # type: ignore[override]
            pass

    with pytest.raises(ArgumentError, match="not one for asyncio"):
        letters_by(ForAsyncio())


def test_a_record_that_was_written() -> None:
    """A report with an offset ends the attempts."""
    producer = Scripted(record(topic="failed", offset=0))
    assert letter_by(producer).send() is None
    assert len(producer.written) == 1


def test_a_record_that_librdkafka_only_concludes_to_be_written(
    embedded_kafka: EmbeddedKafka,
) -> None:
    """Its request is refused and a later one is not: it is written by another attempt."""
    embedded_kafka.create_topic("failed", 1)
    node = embedded_kafka.cluster.nodes[1]
    embedded_kafka.call(node.slow, 0.5, "Produce", 1)
    embedded_kafka.call(node.inject, "Produce", "NOT_LEADER_OR_FOLLOWER")
    producer = Producer(
        {
            "bootstrap.servers": embedded_kafka.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )
    letter = DeadLetters(producer, "failed", timeout=0.0).letter(record(), ValueError("x"), 2, "g")
    assert "it was not confirmed within 0 s" in (letter.send() or "")
    producer.produce("failed", b"later")
    assert producer.flush(30) == 0
    assert "no broker has said at which offset" in (letter.send() or "")
    assert letter.send() is not None
    assert producer.flush(30) == 0
    assert letter.send() is None
    assert end_offsets(embedded_kafka.bootstrap_servers, [FAILED]) == {FAILED: 2}


def test_a_late_report_of_a_failure() -> None:
    """The producer has given the record up then, and gets it again."""
    producer = Scripted(NO_REPORT)
    letter = letter_by(producer, timeout=0.0)
    assert letter.send() is not None
    (report,) = producer.late
    report(AWAY, None)
    assert "_MSG_TIMED_OUT" in (letter.send() or "")
    assert len(producer.written) == 1


@pytest.mark.parametrize(
    ("code", "passes", "reason"),
    [
        ("NOT_ENOUGH_REPLICAS", True, "_MSG_TIMED_OUT"),
        (
            "TOPIC_AUTHORIZATION_FAILED",
            False,
            "grant the user WRITE on topic 'failed', or correct its name",
        ),
    ],
)
def test_what_librdkafka_reports(
    embedded_kafka: EmbeddedKafka, code: str, passes: bool, reason: str
) -> None:
    """It gives up on what passes after its own attempts, and at once on a missing permission."""
    embedded_kafka.create_topic("failed")
    broker = embedded_kafka.cluster.nodes[1]
    producer = Producer(
        {
            "bootstrap.servers": embedded_kafka.bootstrap_servers,
            "message.timeout.ms": 500,
            "log_level": 0,
        }
    )
    letter = DeadLetters(producer, "failed").letter(record(), ValueError("x"), 2, "g")
    fault = embedded_kafka.call(broker.inject, "Produce", code, None)
    if passes:
        assert reason in (letter.send() or "")
        embedded_kafka.call(fault.cancel)
        assert letter.send() is None
    else:
        with pytest.raises(DeadLetterError, match=reason):
            letter.send()


@pytest.mark.parametrize("topic", ["", "orders failed", 3])
def test_a_topic_that_no_broker_can_have_is_refused(topic: Any) -> None:
    """A wrong name is refused where it is given, not at the first dead letter."""
    with pytest.raises(ArgumentError, match="topic="):
        DeadLetters(Scripted(), topic)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["bootstrap:9092", "elsewhere:9092"])
def test_a_subscription_to_the_dead_letters(address: str) -> None:
    """It is refused where one of the group's brokers is one of the producer's; not elsewhere."""
    producer = Scripted()
    producer.topics = ["failed"]
    letters = letters_by(producer)
    addresses = frozenset({address, "third:9092"})
    letters.check_unread(("failed",), addresses, "g")  # not known yet
    assert letters.missing() is None
    expected = pytest.raises(UsageError) if address == "elsewhere:9092" else nullcontext()
    with expected:
        letters.check_unread(("failed",), addresses, "g")


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u6f22", "\U00020000", "\ud800"])
def test_an_error_with_a_long_text(letter: str) -> None:
    """Its header has at most 2000 bytes, in any language: limits of records count bytes."""
    headers = dict(headers_for(record(), ValueError(letter * 5000), 3, "mine"))
    error = headers["dead_letter.error"]
    assert isinstance(error, bytes)
    assert 1996 < len(error) <= 2000
    assert error.decode().startswith("ValueError: ")


def test_a_group_that_reads_its_own_dead_letters_is_refused() -> None:
    """A record that it has parked once is not parked there again; another group's is."""
    letters = DeadLetters(Scripted(), "failed")  # type: ignore[arg-type]
    headers = headers_for(record(), ValueError("bad"), 3, "mine")
    parked = record(topic="failed", headers=headers)
    with pytest.raises(UsageError, match="which reads its own topic of dead letters"):
        letters.letter(parked, ValueError("bad"), 3, "mine")
    assert letters.letter(parked, ValueError("bad"), 3, "another").attempts == 0
    assert letters.letter(record(headers=headers), ValueError("bad"), 3, "mine").attempts == 0
