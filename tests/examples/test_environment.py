"""The environment of the examples is a reader's, without anything of the tests'."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

from tests.conftest import ROOT
from tests.examples.reader import Reader


def test_kgroup_comes_from_the_wheel(reader: Reader) -> None:
    """kgroup is imported from the environment, and no folder of the checkout is searched."""
    program = "import kgroup, sys; print(kgroup.__file__, *sys.path, sep='\\n')"
    found, *searched = reader.run("-c", program).stdout.splitlines()
    assert Path(found) == reader.site_packages / "kgroup" / "__init__.py"
    assert not [path for path in searched if Path(path).is_relative_to(ROOT)]


def test_no_extra_is_installed(reader: Reader) -> None:
    """Packages of extras are not installed, and a test of a worker needs none of them."""
    extras = [Requirement(line) for line in requires("kgroup") or () if "extra ==" in line]
    assert extras
    program = """
import importlib.util, sys
import kgroup.aio, kgroup.broker, kgroup.testing.memory, kgroup.testing.plugin
import kgroup.threaded
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)])
"""
    assert reader.run("-c", program, *(extra.name for extra in extras)).stdout == "\n"
