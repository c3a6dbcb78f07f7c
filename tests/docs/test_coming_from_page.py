"""docs/coming_from.md: what its tables name in kgroup exists, and in the other clients too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import aiokafka
import attrs
import confluent_kafka
import pytest

import kgroup.aio
import kgroup.threaded
from kgroup.interfaces import Batch
from tests.conftest import ROOT

PAGE: Final = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
CODE: Final = re.compile(r"`([^`]+)`")
SET_AT_ITS_START: Final = {"assignment", "ending"}
"""What a generation has as attributes of the object; `hasattr` sees those of the class."""
OWNERS: Final = {
    "generation": (kgroup.Generation, kgroup.threaded.Generation, kgroup.aio.Generation),
    "group": (kgroup.ConsumerGroup, kgroup.threaded.ConsumerGroup, kgroup.aio.ConsumerGroup),
    "batch": (Batch,),
}
OTHERS: Final = {"commitAsync", "onPartitionsAssigned", "onPartitionsLost", "onPartitionsRevoked"}
"""Names of the Java client."""
ARGUMENTS: Final = {"on_assign", "on_commit", "on_lost", "on_revoke"} | {
    "error_cb",
    "logger",
    "stats_cb",
    "throttle_cb",
}
"""Arguments of confluent-kafka's functions, whose signatures Python does not have."""


def rows(title: str) -> Iterator[list[str]]:
    """The rows of the first table after a text, without its header."""
    _, _, rest = PAGE.partition(title)
    lines = rest[rest.index("\n| ") + 1 :].partition("\n\n")[0].splitlines()
    for line in lines[2:]:
        yield re.split(r" *\| *", line)[1:-1]


def test_attributes_exist() -> None:
    """Generations, groups and batches have what the page says."""
    # Kafka's properties have more dots, or a value.
    found = re.findall(r"`(?:await )?(generation|group|batch)\.([a-z_]+)(?![a-z_.=])", PAGE)
    missing = {
        (owner, name)
        for owner, name in found
        if name not in SET_AT_ITS_START and not any(hasattr(one, name) for one in OWNERS[owner])
    }
    assert len(found) > 30
    assert missing <= {("group", "id")}  # librdkafka's setting


def test_settings_exist() -> None:
    """Each setting is one of `GroupConfig`, and one of aiokafka's consumer."""
    fields = {field.name for field in attrs.fields(kgroup.GroupConfig)}
    arguments = set(inspect.signature(aiokafka.AIOKafkaConsumer).parameters)
    for _, of_aiokafka, ours, _ in rows("## Settings"):
        assert {name.partition("=")[0] for name in CODE.findall(ours)} <= fields
        assert set(CODE.findall(of_aiokafka)) <= arguments


@pytest.mark.parametrize("theirs", [cells[0] for cells in rows("## Calls")])
def test_their_calls_exist(theirs: str) -> None:
    """Each call is one of confluent-kafka or of aiokafka, or is named as Java's."""
    clients = (confluent_kafka.Consumer, confluent_kafka.Producer, aiokafka.AIOKafkaConsumer)
    modules = (confluent_kafka, aiokafka.structs)
    known = set(inspect.signature(aiokafka.AIOKafkaConsumer).parameters) | OTHERS | ARGUMENTS
    for code in CODE.findall(theirs):
        name = code.partition("(")[0]
        if " of Java" not in theirs and "." not in name and name != "async for":
            assert name in known or any(hasattr(one, name) for one in (*clients, *modules)), name
