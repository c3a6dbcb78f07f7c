"""The built distributions contain kgroup once, completely, and nothing else."""

from __future__ import annotations

import configparser
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import LINKS, ROOT
from tests.house.built import build, copy_checkout
from tests.house.sources import package_files, packages

# The builds are made once in whichever worker runs this file.
pytestmark = pytest.mark.xdist_group("wheel")


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name; no name may occur twice."""
    with zipfile.ZipFile(wheel) as archive:
        twice = [name for name, times in Counter(archive.namelist()).items() if times > 1]
        assert twice == []
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with its links and without what earlier builds left."""
    return copy_checkout(tmp_path_factory.mktemp("wheel") / "tree")


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    """The source distribution of the checkout, unpacked."""
    archive = build(tree, "sdist", tree.parent / "sdist")
    with tarfile.open(archive) as opened:
        # The argument of this name is new in Python 3.11.4.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(tree.parent)  # noqa: S202 # the archive is ours
    return tree.parent / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(tree: Path) -> dict[str, bytes]:
    """What the wheel of the checkout holds."""
    return contents(build(tree, "wheel", tree.parent / "wheel"))


def type_files(root: Path) -> list[str]:
    """What type checkers read of kgroup beside its modules: the marker and every stub."""
    folders = [root / "kgroup", *(root / link for link in LINKS)]
    stubs = [path for folder in folders for path in folder.rglob("*.pyi")]
    return ["kgroup/py.typed", *(path.relative_to(root).as_posix() for path in stubs)]


def test_setup_cfg_lists_every_package() -> None:
    """setup.cfg names every folder with an ``__init__.py`` under kgroup, and nothing else."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = config["options"]["packages"].split()
    assert listed == packages(), "name each package in setup.cfg, [options] packages, sorted"


def test_the_wheel_installs_kgroup_and_nothing_else(wheel: dict[str, bytes]) -> None:
    """The top level of the wheel has kgroup and its metadata."""
    tops = {name.partition("/")[0] for name in wheel}
    assert {"dist-info" if top.endswith(".dist-info") else top for top in tops} == {
        "kgroup",
        "dist-info",
    }


def test_the_wheel_holds_every_module_once(tree: Path, wheel: dict[str, bytes]) -> None:
    """The wheel's kgroup is the checkout's, generation and watchers included, with its types."""
    installed = {name: text for name, text in wheel.items() if name.startswith("kgroup/")}
    expected = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in package_files(tree).values()
    }
    page = ("kgroup/cli/timeline/page.css", "kgroup/cli/timeline/page.js")
    for name in (*page, "kgroup/metrics/grafana.json", *type_files(tree)):
        assert name in installed, "list it in setup.cfg, [options.package_data]"
        assert installed.pop(name) == (tree / name).read_bytes()
    assert sorted(installed) == sorted(expected)
    assert installed == expected
    assert {"kgroup/generation/__init__.py", "kgroup/watchers/__init__.py"} <= set(installed)


def test_the_wheel_of_the_sdist_is_the_same(sdist: Path, wheel: dict[str, bytes]) -> None:
    """A wheel built from the source distribution is, byte for byte, that of the checkout."""
    again = contents(build(sdist, "wheel", sdist.parent / "again"))
    assert sorted(again) == sorted(wheel)
    assert again == wheel


def test_the_sdist_has_what_development_needs(tree: Path, sdist: Path) -> None:
    """The sdist has tests, examples, documentation and settings, and each package once."""
    names = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    developed = {
        path.relative_to(tree).as_posix()
        for folder in ("benchmarks", "docs", "examples", "tests")
        for path in (tree / folder).rglob("*")
        if path.is_file()
    }
    settings = {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "pyproject.toml",
        "tox.ini",
        ".ci/run",
    }
    assert developed | settings <= names
    assert "generation/__init__.py" in names
    assert not [name for name in names if name.startswith(("kgroup/generation", "kgroup/watchers"))]
