"""One hunting process for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testing.simulation.mutations.hunting import Hunter, hunting


@pytest.fixture(scope="session")
def hunter() -> Iterator[Hunter]:
    """Hunts for mutations."""
    with hunting() as one:
        yield one
