"""The choice of free ports."""

from __future__ import annotations

import random

from kgroup.testing.probe import PORTS, free_ports


def test_the_seed_of_the_tests_does_not_choose_the_ports() -> None:
    """Processes whose generator has the same seed choose different ports."""
    chosen = []
    for _ in range(2):
        random.seed(17)
        chosen.append(free_ports(3))
    assert chosen[0] != chosen[1]
    assert all(port in PORTS for ports in chosen for port in ports)
