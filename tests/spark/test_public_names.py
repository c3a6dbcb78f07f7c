"""The public names of ``kgroup.spark``."""

from __future__ import annotations

from types import ModuleType

import pytest

import kgroup.spark
from tests.house.test_public_names import check_annotations
from tests.test_init import check_names


def test_every_name_is_found_where_it_is_defined() -> None:
    """As for ``kgroup``; ``read_ranges`` needs PySpark, which is installed here."""
    check_names(kgroup.spark)


def test_completion_shows_only_public_names() -> None:
    """As for the other packages (``tests/house/test_public_names.py``), sorted."""
    names = dir(kgroup.spark)
    assert names == sorted(vars(kgroup.spark)["__all__"])
    assert not any(name.startswith("_") for name in names)
    assert not [name for name in names if isinstance(getattr(kgroup.spark, name), ModuleType)]


@pytest.mark.parametrize("name", ["kgroup.spark", "kgroup.testing.spark"])
def test_annotations_can_be_resolved(name: str) -> None:
    """As for the other packages; they name types of PySpark and pyarrow."""
    check_annotations(name)
