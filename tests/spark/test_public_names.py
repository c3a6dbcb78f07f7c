"""The public names of ``kgroup.spark``."""

from __future__ import annotations

import kgroup.spark
from tests.test_init import check_names


def test_every_name_is_found_where_it_is_defined() -> None:
    """As for ``kgroup``; ``read_ranges`` needs PySpark, which is installed here."""
    check_names(kgroup.spark)
