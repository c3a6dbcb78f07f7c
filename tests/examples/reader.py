"""A reader's environment: kgroup from its wheel in a fresh virtual environment, and the examples.

The environment is made once for all processes of a run. pip installs kgroup's wheel into it. The
requirements of kgroup, and pytest with pytest-trio, are links to the installed distributions of the
tests, so that no network is needed. The environment has exactly the distributions that the wheel's
metadata names, directly or indirectly: an example that needs more fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Final, final
from zipfile import Path as ZipPath

import attrs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.house.built import build, copy_checkout

PYTEST: Final = ("pytest", "pytest-trio")
"""What a reader installs in addition to test a worker."""
NOT_INHERITED: Final = ("PYTHON", "COVERAGE_", "COV_", "PYTEST_", "PIP_", "VIRTUAL_ENV")
"""Prefixes of variables that would carry the tests' environment into the reader's."""


@final
@attrs.frozen
class Reader:
    """The machine of a reader of the examples.

    Attributes:
        folder: where the examples are.
        python: the environment's interpreter.
        site_packages: the folder of the environment's packages.
    """

    folder: Path
    python: Path
    site_packages: Path

    def variables(self) -> Mapping[str, str]:
        """The environment variables; standard output is not buffered, as on a terminal."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)}
        return {**kept, "PYTHONUNBUFFERED": "1"}

    def run(
        self, *arguments: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python and wait until it ends."""
        return subprocess.run(
            [self.python, *arguments],
            cwd=cwd or self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def reader_in(folder: Path) -> Reader:
    """The reader whose environment `prepare` has made in this folder."""
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Reader(folder, python, folder / "venv" / "lib" / version / "site-packages")


def prepare(folder: Path) -> None:
    """Make a reader's environment in this folder, with the examples."""
    reader = reader_in(folder)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__*"))
    wheel = build(copy_checkout(folder / "tree"), "wheel", folder)
    venv.create(folder / "venv", symlinks=True)
    for name, found in required_by(wheel).items():
        link(name, found, reader.site_packages)
    # pip checks the requirements, as for a reader, and refuses if one is missing.
    pip = [sys.executable, "-m", "pip", "--python", str(reader.python), "install", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel), *PYTEST], check=True, env=reader.variables())


def required_by(wheel: Path) -> dict[str, Distribution]:
    """All distributions that a wheel and `PYTEST` require without extras, also indirectly."""
    found: dict[str, Distribution] = {}
    left = [*requirements(of_wheel(wheel)), *PYTEST]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found[name] = distribution(name)
            left += requirements(found[name])
    return found


def requirements(of: Distribution) -> Iterator[str]:
    """The names of a distribution's requirements on this machine, without its extras."""
    for line in of.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def of_wheel(wheel: Path) -> Distribution:
    """The metadata of a wheel."""
    (info,) = (entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return PathDistribution(info)


def link(name: str, found: Distribution, into: Path) -> None:
    """Link the top-level files and folders of a distribution."""
    files = found.files
    assert files, f"{name} does not say which files it has"
    tops = {path.parts[0] for path in files} - {"..", "__pycache__"}
    for top in sorted(tops):
        where = Path(str(found.locate_file(top)))
        if not (into / top).exists():
            (into / top).symlink_to(where)
