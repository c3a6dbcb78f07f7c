"""The group protocols that Kafka had, each a member of the simulator: see docs/history.md."""

from __future__ import annotations

from kgroup.testing.simulation.schemes.table import SCHEMES, Scheme

__all__ = ["SCHEMES", "Scheme"]
