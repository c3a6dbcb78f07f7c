"""``kgroup`` and its packages show their public names and no others.

That each is documented, ruff checks (D1).
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator
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


MODULES = (
    *("errors", "events", "health", "interfaces", "monitors", "status", "types"),
    *("metrics.prometheus", "metrics.opentelemetry", "testing.kafka"),
)
DOCUMENTED = ("kgroup", *(f"kgroup.{name}" for name in (*PACKAGES, *MODULES)))


def functions_of(module: types.ModuleType) -> Iterator[Callable[..., object]]:
    """What a module defines or shows that can be called, with the functions of its classes."""
    for found in (getattr(module, name) for name in dir(module) if not name.startswith("_")):
        if not getattr(found, "__module__", "").startswith("kgroup"):
            continue
        if isinstance(found, type):
            yield found
            for one in vars(found).values():
                one = one.fget if isinstance(one, property) else getattr(one, "__func__", one)  # noqa: PLW2901
                if inspect.isfunction(one):
                    yield one
        elif inspect.isfunction(found):
            yield found


def check_annotations(name: str) -> None:
    """Resolve the annotations of each public class of a module, its methods and each function."""
    for one in functions_of(import_module(name)):
        typing.get_type_hints(one)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_annotations_can_be_resolved(name: str) -> None:
    """``typing.get_type_hints`` works for all that is public and needs no PySpark."""
    check_annotations(name)


def test_modules_for_tests_are_imported_on_first_use() -> None:
    """Every run of pytest imports the plugin, which must not bring Kafka's clients with it."""
    program = (
        "import sys, kgroup.testing\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "assert kgroup.testing.admin.create_topic\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
