"""The fixture for tests of several brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kgroup.broker import EmbeddedCluster
from tests.broker.clusters import three_brokers


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers and a topic with a partition on each, and replicas on all."""
    async with three_brokers() as made:
        yield made
