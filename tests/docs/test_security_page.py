"""docs/security.md lists the embedded broker's limits with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES, CoordinatorSettings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "security.md"
ROW = re.compile(r"\| `([a-z.]+)` \| `([^`]+)` \|")
#: Limits of what one client can cost; the other properties configure the broker's behaviour.
LIMITS = [
    name
    for name in PROPERTIES
    if re.search(r"\.max\.|max\.|\.retention\.bytes", name) and ".timestamp." not in name
]


def test_every_limit_is_in_the_table_with_its_default() -> None:
    """The table has every setting that bounds a cost, and only settings that exist."""
    listed = dict(ROW.findall(PAGE.read_text()))
    settings = CoordinatorSettings()
    defaults = {name: text for name, (_, _, text) in PROPERTIES.items()}
    for name, (field, unit, *_) in GROUP_PROPERTIES.items():
        if unit is None:
            defaults[name] = str(getattr(settings, field))
    assert {name: defaults.get(name) for name in listed} == listed
    assert set(LIMITS) - set(listed) == {"transaction.max.timeout.ms"}
