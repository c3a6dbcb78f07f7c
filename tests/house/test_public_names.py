"""``kgroup`` shows its public names and no others. That each is documented, ruff checks (D1)."""

from __future__ import annotations

import types

import kgroup


def test_kgroup_shows_only_its_public_names() -> None:
    """Completion shows the names of ``__init__.pyi``, of which two are modules."""
    names = dir(kgroup)
    assert names == vars(kgroup)["__all__"]
    modules = [name for name in names if isinstance(getattr(kgroup, name), types.ModuleType)]
    assert modules == ["aio", "threaded"]
    assert not any(name.startswith("_") for name in names)
