"""Public names that are imported on first use."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import kgroup
import kgroup.spark
from kgroup.lazy import lazy_names


@pytest.mark.parametrize("package", [kgroup, kgroup.spark], ids=lambda package: package.__name__)
def test_every_name_is_found_where_it_is_defined(package: ModuleType) -> None:
    """Each name in ``__all__`` is that of the module that defines it, and ``dir`` lists it."""
    for name in package.__all__:
        found = getattr(package, name)
        assert getattr(import_module(found.__module__), name) is found
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_a_name_that_is_not_there() -> None:
    """Any other name raises the error of a module without it, even if a searched module has it."""
    find, _ = lazy_names("kgroup", ("Nowhere",), ("types",))
    for name in ("Nowhere", "INT64_MAX"):
        with pytest.raises(AttributeError, match=f"module 'kgroup' has no attribute {name!r}"):
            find(name)


def test_importing_kgroup_imports_no_event_loop() -> None:
    """The package itself, its values and its errors import neither trio nor the clients."""
    code = (
        "import kgroup, sys; kgroup.TopicPartition, kgroup.KgroupError;"
        " print(sorted({'trio', 'kio', 'confluent_kafka'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
