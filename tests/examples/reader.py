"""What a reader of the examples has: kgroup from its wheel in a fresh environment, and the files.

The environment is made once for all processes of a run. kgroup's wheel is installed into it by
pip; what kgroup requires, and pytest with pytest-trio, are links to the distributions that the
tests themselves run with, so that no network is needed. They are those that the wheel's own
metadata names, directly or not, and no others: an example that needs more fails.
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
"""What a reader who tests a worker of their own installs beside kgroup."""
NOT_INHERITED: Final = ("PYTHON", "COVERAGE_", "COV_", "PYTEST_", "PIP_", "VIRTUAL_ENV")
"""How variables begin by which the tests' own environment would reach into the reader's."""


@final
@attrs.frozen
class Reader:
    """A reader's machine.

    Attributes:
        folder: the examples, and README.md, lie here.
        python: the environment's interpreter.
        site_packages: where the environment has its packages.
    """

    folder: Path
    python: Path
    site_packages: Path

    def variables(self) -> Mapping[str, str]:
        """The process environment; standard output is not held back, as on a terminal."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)}
        return {**kept, "PYTHONUNBUFFERED": "1"}

    def run(
        self, *arguments: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python to its end."""
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
    """The reader whose environment `prepare` has made in a folder."""
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Reader(folder, python, folder / "venv" / "lib" / version / "site-packages")


def prepare(folder: Path) -> None:
    """Make a reader's environment and give it the examples."""
    reader = reader_in(folder)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__*"))
    shutil.copy(ROOT / "README.md", folder)
    wheel = build(copy_checkout(folder / "tree"), "wheel", folder)
    venv.create(folder / "venv", symlinks=True)
    for name, found in required_by(wheel).items():
        link(name, found, reader.site_packages)
    # With what it requires, as a reader would: pip refuses if anything is missing.
    pip = [sys.executable, "-m", "pip", "--python", str(reader.python), "install", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel), *PYTEST], check=True, env=reader.variables())


def required_by(wheel: Path) -> dict[str, Distribution]:
    """All that a wheel and `PYTEST` require without extras, directly or not, by name."""
    found: dict[str, Distribution] = {}
    left = [*requirements(of_wheel(wheel)), *PYTEST]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found[name] = distribution(name)
            left += requirements(found[name])
    return found


def requirements(of: Distribution) -> Iterator[str]:
    """The names of what a distribution requires here, without its extras."""
    for line in of.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def of_wheel(wheel: Path) -> Distribution:
    """A wheel's metadata."""
    (info,) = (entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return PathDistribution(info)


def link(name: str, found: Distribution, into: Path) -> None:
    """Link a distribution's files and folders of the highest level."""
    files = found.files
    assert files, f"{name} does not say which files it has"
    tops = {path.parts[0] for path in files} - {"..", "__pycache__"}
    for top in sorted(tops):
        where = Path(str(found.locate_file(top)))
        if not (into / top).exists():
            (into / top).symlink_to(where)
