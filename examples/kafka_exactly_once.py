"""Each result once in another Kafka topic, whatever is killed, and whenever.

    python examples/kafka_exactly_once.py localhost:9092 orders prices worker-1

A transaction has the results of one batch and the offset behind that batch. So either both are
visible, or neither is. Readers of the results need ``isolation_level="read_committed"``. Several
workers can share the topic, each with its own name.
"""

import queue
import sys
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

import kgroup
from kgroup.threaded import Generation, run

THREADS = 2
TIMEOUT = 10.0
"""Seconds of one call of the producer."""


def transactional(servers: str, name: str) -> Producer:
    """A producer; it aborts what the last one with its name has left open."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": name,
            # Other members wait for so long for the open transactions of a worker that was killed.
            "transaction.timeout.ms": 10_000,
        }
    )
    finish(producer.init_transactions)
    return producer


def finish(call: Callable[[float], object]) -> None:
    """Call a function of a producer until it has succeeded or cannot succeed."""
    while True:
        try:
            call(TIMEOUT)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


class Results:
    """Writes to a topic.

    Args:
        servers: where the topic is.
        topic: its name.
        name: no other running worker may have it, and a worker that is started again keeps it.
    """

    def __init__(self, servers: str, topic: str, name: str) -> None:
        self._topic = topic
        # A producer has one transaction at a time, so each thread takes one for a batch.
        self._producers: queue.SimpleQueue[Producer] = queue.SimpleQueue()
        for number in range(THREADS):
            self._producers.put(transactional(servers, f"{topic}-{name}-{number}"))

    def write(self, generation: Generation, batch: kgroup.Batch) -> None:
        """Write the results of a batch, and commit its offset, in one transaction."""
        producer = self._producers.get()
        try:
            producer.begin_transaction()
            try:
                for message in batch:
                    producer.produce(self._topic, result(message), key=message.key())
                generation.commit_in_transaction(producer, {batch.partition: batch.next_offset})
                finish(producer.commit_transaction)
            except BaseException:
                finish(producer.abort_transaction)
                raise
        finally:
            self._producers.put(producer)
        print(f"{batch.partition} has results up to {batch.next_offset}", flush=True)


def result(message: kgroup.Message) -> bytes:
    """What is written for a record."""
    return f"{message.topic()} {message.partition()} {message.offset()}".encode()


if __name__ == "__main__":
    _, servers, topic, target, name = sys.argv
    config = kgroup.GroupConfig(
        bootstrap_servers=servers,
        group_id=f"{topic}-to-{target}",
        topics=[topic],
        # Records of a transaction that is aborted are no input.
        isolation_level="read_committed",
        # A worker that was killed and is started again gets its partitions at once.
        group_instance_id=name,
    )
    # kgroup itself commits nothing: the transactions do.
    run(
        config, Results(servers, target, name).write, threads=THREADS, max_records=100, commit=False
    )
