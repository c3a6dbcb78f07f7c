"""Every import is declared: those of kgroup in setup.cfg, those of its tests in pyproject.toml.

A package that only another dependency requires can disappear with its next release. deptry, which
checks this for other projects, does not read setup.cfg.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.house.sources import package_files

OUR_OWN: Final = {"benchmarks", "kgroup", "tests"}
EXTRAS: Final = {
    "kgroup.broker.security.tls": {"kafka"},
    "kgroup.cli.demo": {"spark"},
    "kgroup.metrics.opentelemetry": {"opentelemetry"},
    "kgroup.metrics.prometheus": {"prometheus"},
    "kgroup.spark": {"spark"},
    "kgroup.testing": {"kafka"},
    "kgroup.testing.spark": {"kafka", "spark"},
    "kgroup.testing.spark_plugin": {"kafka", "spark"},
}
"""The extras from which a package or module may import; the longest matching name counts."""
DISTRIBUTIONS: Final = {"opentelemetry": "opentelemetry-api"}
"""Distributions whose name is not that of the module that they bring."""
LOADED_BY: Final = {
    "kgroup.testing.plugin": {"pytest"},
    "kgroup.testing.spark_plugin": {"pytest"},
}
"""Modules that only the named program loads, so that it is always installed."""


def names_of(requirements: Iterable[Any]) -> set[str]:
    """The distributions that a list of requirements names; groups within groups are left out."""
    return {
        canonicalize_name(Requirement(one).name)
        for one in requirements
        if isinstance(one, str) and one and not one.startswith("#")
    }


def declared() -> tuple[set[str], dict[str, set[str]], set[str]]:
    """The requirements of setup.cfg, those of each extra, and all dependency groups' together."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = {
        name: names_of(text.splitlines()) for name, text in setup["options.extras_require"].items()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = set[str]().union(*map(names_of, project["dependency-groups"].values()))
    return names_of(setup["options"]["install_requires"].splitlines()), extras, groups


def imported(source: str) -> Iterator[str]:
    """The distributions that a source imports anywhere, named as their modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in OUR_OWN:
                yield canonicalize_name(DISTRIBUTIONS.get(top, top))


def package_sources() -> dict[str, str]:
    """Every module of kgroup and its source."""
    return {name: path.read_text() for name, path in package_files().items()}


def undeclared(
    modules: Mapping[str, str], always: set[str], extras: Mapping[str, set[str]]
) -> list[str]:
    """Each import of kgroup's modules that nothing declares, as a sentence."""
    faults = set[str]()
    for module, source in modules.items():
        allowed = always | LOADED_BY.get(module, set())
        owner = module
        while owner and owner not in EXTRAS:
            owner = owner.rpartition(".")[0]
        for extra in EXTRAS.get(owner, ()):
            allowed |= extras[extra]
        faults |= {
            f"{module} imports {name}, which setup.cfg does not declare for it"
            for name in set(imported(source)) - allowed
        }
    return sorted(faults)


def test_kgroup_declares_what_it_imports() -> None:
    """A module imports the standard library, the requirements, and what its extras bring."""
    always, extras, _ = declared()
    assert undeclared(package_sources(), always, extras) == []


def test_kgroup_imports_what_it_declares() -> None:
    """No requirement is a leftover."""
    always, _, _ = declared()
    sources = package_sources().values()
    assert always - set[str]().union(*map(set, map(imported, sources))) == set()


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "docs", "examples"])
def test_the_rest_of_the_checkout_declares_what_it_imports(folder: str) -> None:
    """Tests, benchmarks and scripts import requirements of kgroup, its extras or the groups."""
    always, extras, groups = declared()
    names = {"kafka": "kafka-python", "xdist": "pytest-xdist"}
    beside = {path.stem for path in (ROOT / folder).iterdir()}
    for path in Path(ROOT / folder).rglob("*.py"):
        found = {names.get(name, name) for name in imported(path.read_text())} - beside
        assert found <= always.union(groups, *extras.values()), path


@pytest.mark.parametrize(
    ("module", "source", "faults"),
    [
        ("kgroup.wire.codec", "import struct, trio\nfrom kgroup.types import x", 0),
        ("kgroup.wire.codec", "from crc32c import crc32c", 1),
        ("kgroup.wire.codec", "def late():\n    import pyspark.sql", 1),
        ("kgroup.spark.columns", "import pyspark.sql", 0),
        ("kgroup.testing.java", "import pyspark, psutil", 1),
        ("kgroup.testing.spark.java", "import pyspark, psutil", 0),
        ("kgroup.testing.java", "import pytest", 1),
        ("kgroup.testing.plugin", "import pytest", 0),
    ],
)
def test_an_undeclared_import_is_found(module: str, source: str, faults: int) -> None:
    """An import that is not declared, or only by another extra, is found wherever it stands."""
    extras = {"kafka": {"psutil"}, "spark": {"pyspark"}}
    assert len(undeclared({module: source}, {"trio"}, extras)) == faults
