"""Fixtures: a reader's environment with kgroup's wheel, and a topic on each of the two brokers."""

from __future__ import annotations

import pytest
from filelock import FileLock

from tests.brokers import Kafka
from tests.examples.reader import Reader, prepare, reader_in
from tests.examples.topic import Topic


@pytest.fixture(scope="session")
def reader(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The reader's environment, made once by the first of pytest-xdist's workers that needs it."""
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
    """A separate topic of four partitions, on each of the two brokers."""
    return Topic.create(kafka, partitions=4)
