"""``kgroup`` shows its public names and no others. That each is documented, ruff checks (D1)."""

from __future__ import annotations

import types

import kgroup


def test_kgroup_shows_only_its_public_names() -> None:
    """``kgroup.__all__`` lists everything that the package shows, apart from its modules."""
    shown = {
        name
        for name in dir(kgroup)
        if not name.startswith("_") and not isinstance(getattr(kgroup, name), types.ModuleType)
    }
    assert sorted(kgroup.__all__) == sorted(shown)
