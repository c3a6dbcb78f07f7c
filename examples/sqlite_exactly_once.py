"""Each record once in an SQLite table, whatever is killed, and whenever.

    python examples/sqlite_exactly_once.py localhost:9092 orders orders.db worker-1

The offsets are in the same database as the records and change in the same transactions, and each
generation starts where the database says. Offsets are committed to the group too: tools show its
lag by them, and they keep the group, and so the order of its generation ids, while no worker runs.
Several workers can share a topic, each with its own name.
"""

import sqlite3
import sys
from contextlib import closing

import kgroup
from kgroup.threaded import Generation, run

TABLES = """
CREATE TABLE IF NOT EXISTS records (topic TEXT, partition INT, offset INT, value BLOB);
CREATE TABLE IF NOT EXISTS progress (
    topic TEXT, partition INT, next_offset INT NOT NULL, generation INT NOT NULL,
    PRIMARY KEY (topic, partition)
);
"""
WRITE = "INSERT INTO records VALUES (?, ?, ?, ?)"
READ_PROGRESS = "SELECT next_offset, generation FROM progress WHERE topic = ? AND partition = ?"
WRITE_PROGRESS = "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)"


class GapError(Exception):
    """A batch does not follow what was written: records are lost, or the topic is another one."""


class Store:
    """Records in SQLite, and how far each partition was written."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Where the next batch of each partition has to start.
        self._next: dict[kgroup.TopicPartition, int] = {}
        with closing(self._connect()) as database:
            database.executescript(TABLES)

    def starts(
        self, partitions: tuple[kgroup.TopicPartition, ...]
    ) -> dict[kgroup.TopicPartition, int]:
        """Where each partition continues: at its beginning if nothing of it was written.

        Without an offset here, kgroup would take the one that the group has committed. If the
        database is new or was deleted, it does not have the records before that.
        """
        with closing(self._connect()) as database:
            found = {one: self._progress(database, one)[0] for one in partitions}
        self._next = {one: offset for one, offset in found.items() if offset is not None}
        return {one: self._next.get(one, 0) for one in partitions}

    def write(self, generation: Generation, batch: kgroup.Batch) -> None:
        """Write the records that are not there yet, and the new progress, in one transaction."""
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")  # no other worker writes between here and the end
            written, newest = self._progress(database, batch.partition)
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
            if batch.start_offset != begin or (written is not None and written < begin):
                raise GapError(
                    f"{batch.partition}: a batch starts at {batch.start_offset}, not at {begin};"
                    f" the database has the records before {written}"
                )
            # It may have more: a member that did not know yet that it had lost the partition wrote
            # on after this one had asked for its start. Or a crash of the coordinator made an id
            # repeat, which the fence cannot see.
            place = batch.partition.topic, batch.partition.partition
            rows = [
                (*place, message.offset(), message.value())
                for message in batch
                if written is None or message.offset() >= written
            ]
            database.executemany(WRITE, rows)
            after = max(batch.next_offset, written or 0)
            database.execute(WRITE_PROGRESS, (*place, after, generation.generation_id))
        self._next[batch.partition] = batch.next_offset
        print(f"{batch.partition} has the records before {batch.next_offset}", flush=True)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60, isolation_level=None)

    @staticmethod
    def _progress(
        database: sqlite3.Connection, partition: kgroup.TopicPartition
    ) -> tuple[int | None, int]:
        """The next offset to write, None at the beginning; the last generation that wrote."""
        found = database.execute(READ_PROGRESS, (partition.topic, partition.partition)).fetchone()
        return (None, 0) if found is None else found


if __name__ == "__main__":
    _, servers, topic, path, name = sys.argv
    store = Store(path)
    config = kgroup.GroupConfig(
        bootstrap_servers=servers,
        group_id=f"{topic}-sqlite",
        topics=[topic],
        # A worker that was killed and is started again gets its partitions at once.
        group_instance_id=name,
        starts=store.starts,
    )
    run(config, store.write, max_records=100)
