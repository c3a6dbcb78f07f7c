"""All mutations."""

from __future__ import annotations

from typing import Final

from tests.testing.simulation.mutations.client_side import CLIENT
from tests.testing.simulation.mutations.coordinator_side import COORDINATOR

MUTATIONS: Final = tuple(
    sorted((*COORDINATOR, *CLIENT), key=lambda one: (one.breaks, one.description))
)
