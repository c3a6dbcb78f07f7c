"""The page on security names limits that there are, with the defaults that they have."""

from __future__ import annotations

import re
from pathlib import Path

from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups.coordinator_settings import PROPERTIES as GROUP_PROPERTIES
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "security.md"
ROW = re.compile(r"\| `([a-z.]+)` \| `([^`]+)` \|")
#: Limits of one client's costs; the other properties say what the broker does.
LIMITS = [name for name in PROPERTIES if re.search(r"\.max\.|max\.|\.retention\.bytes", name)]


def test_every_limit_is_in_the_table_with_its_default() -> None:
    """Each setting that bounds a cost is told, and none that there is not."""
    told = dict(ROW.findall(PAGE.read_text()))
    settings = CoordinatorSettings()
    defaults = {name: text for name, (_, _, text) in PROPERTIES.items()}
    for name, (field, unit, *_) in GROUP_PROPERTIES.items():
        if unit is None:
            defaults[name] = str(getattr(settings, field))
    assert {name: defaults.get(name) for name in told} == told
    assert set(LIMITS) - set(told) == {"transaction.max.timeout.ms"}
