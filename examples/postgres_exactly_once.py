"""Each record once in a PostgreSQL table, whatever is killed, and whenever; with eight threads.

    python examples/postgres_exactly_once.py localhost:9092 orders postgresql://me@localhost/mine w1

The offsets are in the same database as the records and change in the same transactions, and each
generation starts where the database says. Several workers can share a topic, each with its own
name. Needs psycopg.
"""

import sys

import psycopg

import kgroup
from kgroup.threaded import Generation, run

TABLES = """
    SELECT pg_advisory_xact_lock(1);  -- workers start at the same time
    CREATE TABLE IF NOT EXISTS records (topic text, partition int, "offset" bigint, value bytea);
    CREATE TABLE IF NOT EXISTS progress (
        topic text, partition int, next_offset bigint NOT NULL, generation int NOT NULL,
        PRIMARY KEY (topic, partition)
    );
"""
BEGIN = "INSERT INTO progress VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING"
# The lock makes another worker's transaction on this partition wait until this one has ended.
LOCK = "SELECT next_offset, generation FROM progress WHERE topic = %s AND partition = %s FOR UPDATE"
WRITE = "INSERT INTO records VALUES (%s, %s, %s, %s)"
WRITE_PROGRESS = """
    UPDATE progress SET next_offset = %s, generation = %s WHERE topic = %s AND partition = %s
"""


class GapError(Exception):
    """A batch does not follow what was written: records are lost, or the topic is another one."""


class Store:
    """Records in PostgreSQL, and how far each partition was written."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Where the next batch of each partition has to start.
        self._next: dict[kgroup.TopicPartition, int] = {}
        with self._connect() as database:
            database.execute(TABLES)

    def starts(
        self, partitions: tuple[kgroup.TopicPartition, ...]
    ) -> dict[kgroup.TopicPartition, int]:
        """Where each partition continues: at its beginning if nothing of it was written.

        Without an offset here, kgroup would take the one that the group has committed. If the
        database is new or was deleted, it does not have the records before that.
        """
        with self._connect() as database:
            rows = database.execute("SELECT topic, partition, next_offset FROM progress").fetchall()
        found = {kgroup.TopicPartition(topic, number): at for topic, number, at in rows}
        self._next = {one: found[one] for one in partitions if one in found}
        return {one: self._next.get(one, 0) for one in partitions}

    def write(self, generation: Generation, batch: kgroup.Batch) -> None:
        """Write the records that are not there yet, and the new progress, in one transaction."""
        place = batch.partition.topic, batch.partition.partition
        with self._connect() as database, database.cursor() as cursor:
            cursor.execute(BEGIN, (*place, batch.start_offset))
            written, newest = cursor.execute(LOCK, place).fetchone() or (0, 0)
            # The fence: a member that was left behind writes nothing once its successor has. The
            # ids of a group that was deleted begin again; then set those in the table to 0.
            if newest > generation.generation_id:
                raise kgroup.StaleGenerationError(
                    f"{batch.partition}: generation {newest} has written to it, and this is"
                    f" {generation.generation_id}; nothing was written",
                    generation.end,
                )
            # The log no longer has the offset at which this worker had to start, so another was
            # taken; or the database was replaced by an older one.
            begin = self._next.get(batch.partition, batch.start_offset)
            if batch.start_offset != begin or written < begin:
                raise GapError(
                    f"{batch.partition}: a batch starts at {batch.start_offset}, not at {begin};"
                    f" the database has the records before {written}"
                )
            # It may have more: a member that did not know yet that it had lost the partition wrote
            # on after this one had asked for its start. Or a crash of the coordinator made an id
            # repeat, which the fence cannot see.
            new = [message for message in batch if (message.offset() or 0) >= written]
            rows = [(*place, message.offset(), message.value()) for message in new]
            cursor.executemany(WRITE, rows)
            after = max(batch.next_offset, written)
            cursor.execute(WRITE_PROGRESS, (after, generation.generation_id, *place))
        self._next[batch.partition] = batch.next_offset
        print(f"{batch.partition} has the records before {batch.next_offset}\n", end="", flush=True)

    def _connect(self) -> psycopg.Connection:
        # A worker that is suspended in the middle of a transaction must not block the others.
        return psycopg.connect(self._url, options="-c idle_in_transaction_session_timeout=10s")


if __name__ == "__main__":
    _, servers, topic, url, name = sys.argv
    store = Store(url)
    config = kgroup.GroupConfig(
        bootstrap_servers=servers,
        group_id=f"{topic}-postgres",
        topics=[topic],
        # A worker that was killed and is started again gets its partitions at once.
        group_instance_id=name,
        starts=store.starts,
    )
    run(config, store.write, threads=8, max_records=100)
