"""kafka-python, as its documentation recommends: ``poll``, process, commit.

https://kafka-python.readthedocs.io/en/master/apidoc/KafkaConsumer.html
"""

from __future__ import annotations

import sys
from time import sleep

from kafka import KafkaConsumer
from kafka.errors import CommitFailedError

from benchmarks.clients.job import Ended, Job, Note, in_threads


def run(job: Job, note: Note, ended: Ended) -> None:
    """Run each member in a thread."""

    def member(group: str) -> None:
        consumer = KafkaConsumer(
            job.topic,
            bootstrap_servers=job.servers,
            group_id=group,
            max_poll_records=job.batch,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **job.python_timeouts(),
        )
        while not ended:
            fetched = consumer.poll(timeout_ms=1000)
            records = [record for several in fetched.values() for record in several]
            if not records:
                continue
            if job.work:
                sleep(job.work)
            note(len(records), ((one.partition, one.offset, one.value) for one in records))
            if job.commit:
                try:
                    consumer.commit()
                except CommitFailedError as error:
                    print(f"commit refused: {error}", file=sys.stderr)
        consumer.close()

    in_threads(member, job.groups())
