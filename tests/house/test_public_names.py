"""``kgroup`` and its packages show their public names and no others.

That each is documented, ruff checks (D1).
"""

from __future__ import annotations

import subprocess
import sys
import types
from importlib import import_module

import pytest

import kgroup

PACKAGES = ("threaded", "aio", "broker", "testing", "testing.simulation")


def test_kgroup_shows_only_its_public_names() -> None:
    """Completion shows the names of ``__init__.pyi``, and its public modules."""
    names = dir(kgroup)
    assert names == vars(kgroup)["__all__"]
    modules = [name for name in names if isinstance(getattr(kgroup, name), types.ModuleType)]
    assert modules == ["aio", "errors", "events", "health", "monitors", "threaded"]
    assert not any(name.startswith("_") for name in names)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_shows_only_its_public_names(package: str) -> None:
    """Completion shows what is public, sorted, and neither internal modules nor ``annotations``."""
    module = import_module(f"kgroup.{package}")
    names = dir(module)
    assert names == sorted(vars(module)["__all__"])
    assert "annotations" not in names
    assert not any(name.startswith("_") for name in names)
    modules = {name for name in names if isinstance(getattr(module, name), types.ModuleType)}
    public = {"testing": set(names), "testing.simulation": {"faults"}}
    assert modules == public.get(package, set())


def test_modules_for_tests_are_imported_on_first_use() -> None:
    """Every run of pytest imports the plugin, which must not bring Kafka's clients with it."""
    program = (
        "import sys, kgroup.testing\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "assert kgroup.testing.admin.create_topic\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
