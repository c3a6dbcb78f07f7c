"""docs/operating.md: each command prints what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kgroup.broker import NewRecord
from kgroup.cli import main
from kgroup.config import GroupConfig
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup
from kgroup.types import TopicPartition

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
SHOWN: Final = re.findall(r"```sh\nkgroup ([^\n]*)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
ADDRESS: Final = "localhost:9092"
UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.fixture
def servers() -> Iterator[str]:
    """The page's cluster: a topic, a group of two members, and one without members."""
    with EmbeddedKafka() as kafka, ExitStack() as members:
        kafka.create_topic("orders", 3)
        for number in range(3):
            records = [
                NewRecord(
                    json.dumps({"amount": offset}).encode(),
                    key=f"customer-{offset}".encode(),
                    headers=[("source", b"web")],
                )
                for offset in range(10)
            ]
            kafka.append("orders", number, records)
        groups = [
            members.enter_context(
                ConsumerGroup(
                    GroupConfig(
                        bootstrap_servers=kafka.bootstrap_servers,
                        group_id="orders",
                        topics=["orders"],
                        client_id=f"worker-{number}",
                    )
                )
            )
            for number in (1, 2)
        ]
        generation = groups[0].next()  # of all partitions; it keeps two when the second one joins
        with ThreadPoolExecutor() as threads:  # a member joins only while its program waits for it
            second = threads.submit(groups[1].next)
            while len(generation.assignment) != 2:
                generation = groups[0].next()
            second.result()
        for partition, offset in ((0, 5), (1, 10)):
            name = TopicPartition("orders", partition)
            generation.seek(name, offset)
            generation.commit({name: offset})
        given = "--group invoices --topic orders --to 3 --new-group --execute"
        run(f"groups reset {given} --bootstrap-servers {kafka.bootstrap_servers}")
        yield kafka.bootstrap_servers


def run(command: str) -> str:
    """What a command prints, on both streams."""
    return CliRunner().invoke(main, shlex.split(command)).output


def steady(text: str) -> list[str]:
    """The lines without what differs from run to run, and without blanks at their ends."""
    text = TIME.sub("TIME", UUID.sub("UUID", text))
    return [re.sub(r" +$", "", line) for line in text.splitlines()]


def test_commands_print_what_the_page_shows(servers: str) -> None:
    """Member ids, times and the address differ, all else is the same."""
    assert len(SHOWN) == 8
    for command, expected in SHOWN:
        printed = run(command.replace(ADDRESS, servers)).replace(servers, ADDRESS)
        assert steady(printed) == steady(expected), command
