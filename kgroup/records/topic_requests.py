"""Requests for the leaders of a topic's partitions, before librdkafka's timer sends them.

librdkafka fetches a partition once it knows the partition's leader. If it does not know the leader
of an assigned partition, it requests metadata by a timer of its own, once a second, and the first
records arrive that much later. That concerns each topic that a Consumer has not read yet, and the
partitions that were added to a topic since librdkafka last requested its metadata.

**How.** ``Consumer.list_topics`` with a time-out of 0 sends a Metadata request and does not wait
for the response. It raises, but librdkafka takes the response in when it comes: it keeps the
leaders, and begins to fetch what is assigned already. So the Consumer's thread never waits, and no
command (a stop, the close) waits for it. If no broker is connected, nothing is sent, but librdkafka
remembers the topic, and requests all topics that it remembers as soon as it connects to a broker.
So nothing has to be repeated, and a failure needs no reaction.

**When.** While the member joins, for the topics of the subscription that are not being fetched: the
leaders are then known before anything is assigned. And whenever partitions are assigned that were
not assigned before: nothing says that their topic was in the subscription, that the topic had as
many partitions then, or that the response has come.

**Which.** confluent-kafka requests one topic or all of the cluster, and a member requests only its
own. So each topic is a request of its own, and there are at most ``MOST`` at a time; the timer
finds the others. A topic that does not exist is not created, because librdkafka writes its setting
``allow.auto.create.topics``, which is false, into the requests. While a topic of the subscription
does not exist, the timer requests it once a second, with all others of that kind in one request.

Source: librdkafka 2.16's ``rd_kafka_topic_scan_all`` (the timer), ``rd_kafka_metadata``,
``rd_kafka_parse_Metadata``, ``rd_kafka_topic_new0`` (a new topic is filled from the cache) and
``rd_kafka_metadata_refresh_known_topics`` (called when a broker is connected).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

MOST: Final = 100
"""The most topics that are requested at a time."""


def request_leaders(consumer: confluent_kafka.Consumer, topics: Iterable[str]) -> None:
    """Send a request for each of these topics; nothing is waited for, and nothing is raised."""
    for topic in islice(topics, MOST):
        # RuntimeError: librdkafka cannot make an object for this topic.
        with suppress(KafkaException, RuntimeError):
            consumer.list_topics(topic, timeout=0)


def has_broker(client: confluent_kafka.Consumer | confluent_kafka.Producer, topic: str) -> bool:
    """Whether librdkafka is connected to any broker; if it is, the topic's leaders are requested.

    Nothing is waited for. librdkafka does not say it in another way: only the error of a request
    that it could send nowhere differs from that of a request without a response yet.
    """
    try:
        client.list_topics(topic, timeout=0)
    except KafkaException as error:
        return bool(error.args[0].code() != KafkaError._TRANSPORT)  # noqa: SLF001 - its name
    return True
