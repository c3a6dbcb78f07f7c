"""Fixtures: the reader whose environment has kgroup's wheel, and a topic on both brokers."""

from __future__ import annotations

import pytest
from filelock import FileLock

from tests.brokers import Kafka
from tests.examples.reader import Reader, prepare, reader_in
from tests.examples.topic import Topic


@pytest.fixture(scope="session")
def reader(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The reader's environment; made by the first of pytest-xdist's workers that comes."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        folder = folder.parent
    made = folder / "reader" / "made"
    with FileLock(folder / "reader.lock"):
        if not made.exists():
            prepare(made.parent)
            made.touch()
    return reader_in(made.parent)


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    """A topic of four partitions, of the test's own, on each of the brokers."""
    return Topic.create(kafka, partitions=4)
