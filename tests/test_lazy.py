"""Names that are looked up when they are asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import kgroup
from kgroup.lazy import lazily


def test_every_name_is_found_where_it_lives() -> None:
    """What ``kgroup`` says it shows is there, once, and it is its module's own."""
    for name in kgroup.__all__:
        assert getattr(kgroup, name) is getattr(import_module(kgroup._HOMES[name]), name)
    assert set(kgroup.__all__) == set(kgroup._HOMES) <= set(dir(kgroup))


def test_a_name_that_is_not_there() -> None:
    """It is refused as of any module."""
    find, _ = lazily("kgroup", {})
    with pytest.raises(AttributeError, match="module 'kgroup' has no attribute 'Consumer'"):
        find("Consumer")


def test_importing_kgroup_imports_no_event_loop() -> None:
    """Who needs no group pays for none."""
    code = (
        "import kgroup, sys; print(sorted({'trio', 'kio', 'confluent_kafka'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
