"""The programs of docs/spark.md run with only the names of broker and folder changed."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import trio

from kgroup.group import ConsumerGroup
from kgroup.testing.embedded import EmbeddedKafka
from tests.conftest import ROOT
from tests.reruns import only_exception

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT: Final = 250.0
PAGE: Final = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
PROGRAMS: Final = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
GROUPS: Final = [text for text in PROGRAMS if "ConsumerGroup" in text]
RECORDS: Final = 100


def named(text: str) -> str:
    """The name of a program: the first function of kgroup.spark that it calls."""
    found = re.search(r"(await|read_ranges|ReaderSettings|foreach_batch|batch\.run)", text)
    return found[1] if found else "?"


def fill(kafka: EmbeddedKafka) -> EmbeddedKafka:
    """Make the topic of the page, with records."""
    kafka.create_topic("orders", 2)
    for partition in range(2):
        kafka.append("orders", partition, [b"%d" % n for n in range(RECORDS)])
    return kafka


@pytest.fixture
def kafka(embedded_kafka: EmbeddedKafka) -> EmbeddedKafka:
    """A broker with the topic of the page."""
    return fill(embedded_kafka)


def run(text: str, kafka: EmbeddedKafka, folder: Path) -> None:
    """Run a program in this process; what it does with SIGINT is undone."""
    text = text.replace("localhost:9092", kafka.bootstrap_servers)
    text = text.replace("/data/orders", str(folder))
    before = signal.getsignal(signal.SIGINT)
    try:
        exec(compile(text, "docs/spark.md", "exec"), {})  # noqa: S102 # our own text
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until_committed(kafka: EmbeddedKafka) -> None:
    """Wait for the commit of all records, or for a deadline."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and _committed(kafka) < 2 * RECORDS:
        time.sleep(0.05)


def run_until_committed(
    text: str, kafka: EmbeddedKafka, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a program until it has committed everything, and shut its group down."""
    made: list[tuple[ConsumerGroup, trio.lowlevel.TrioToken]] = []
    enter = ConsumerGroup.__aenter__

    async def entered(group: ConsumerGroup) -> ConsumerGroup:
        made.append((group, trio.lowlevel.current_trio_token()))
        return await enter(group)

    def end_it() -> None:
        wait_until_committed(kafka)
        for group, token in made:
            trio.from_thread.run_sync(group.shutdown, trio_token=token)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroup, "__aenter__", entered)
        watch = threading.Thread(target=end_it)
        watch.start()
        run(text, kafka, folder)
        watch.join()
    assert _committed(kafka) == 2 * RECORDS


@pytest.mark.parametrize("text", GROUPS, ids=named)
def test_a_program_with_a_group_runs(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    """The program commits everything, and a shutdown ends it."""
    run_until_committed(text, kafka, tmp_path, monkeypatch)


def test_the_shortest_program_writes_a_batch_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its driver died before the commit, the next one replaces what was written."""
    for _ in range(2):  # the second broker has the same records, and no commit
        with EmbeddedKafka() as kafka:
            run_until_committed(GROUPS[0], fill(kafka), tmp_path, monkeypatch)
    assert spark.read.parquet(str(tmp_path)).count() == 2 * RECORDS


def test_ctrl_c_ends_the_program_on_trio(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its member leaves, and Ctrl-C surfaces, although a session has set a handler of its own."""

    def interrupt() -> None:
        wait_until_committed(kafka)
        os.kill(os.getpid(), signal.SIGINT)

    (text,) = (text for text in GROUPS if "trio.run" in text)
    caplog.set_level(logging.INFO, "kgroup")
    before = signal.signal(signal.SIGINT, of_pyspark)
    try:
        watch = threading.Thread(target=interrupt)
        watch.start()
        # trio raises it in the main task, which may be in a nursery.
        with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as raised:
            run(text, kafka, tmp_path)
        assert isinstance(only_exception(raised.value), KeyboardInterrupt)
        watch.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "left the group" in caplog.text
    assert "SIGINT" not in caplog.text


def of_pyspark(*_: object) -> None:
    """A handler like a new SparkContext's."""
    raise KeyboardInterrupt


def test_the_other_programs_run(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranges are read without a group; a secret is refused and not shown."""
    for text in PROGRAMS:
        if text not in GROUPS:
            run(text, kafka, tmp_path)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{RECORDS}\n")
    assert "it may be a secret" in printed
    assert "hunter2" not in printed


def test_every_setting_is_on_the_page() -> None:
    """The table has every setting of ``batches`` and no other."""
    import inspect

    from kgroup.spark import batches

    settings = set(inspect.signature(batches).parameters) - {"generation", "spark"}
    (table,) = re.findall(r"## Settings of `batches`\n\n(.+?)\n\n", PAGE, re.DOTALL)
    rows = table.splitlines()[2:]
    printed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(printed) == sorted(settings)


def _committed(kafka: EmbeddedKafka) -> int:
    return sum(at.offset for at in kafka.committed("lake").values())


def test_there_are_programs() -> None:
    """Each of the tests above has programs to run."""
    assert len(GROUPS) == 3
    assert len(PROGRAMS) == 5
