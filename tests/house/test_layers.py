"""The layers: pyproject.toml says which module may import which, and import-linter checks it.

ruff checks the two rules that import-linter has no contract for: no relative imports, and no import
of the bare names ``generation`` and ``watchers`` (``[tool.ruff.lint.flake8-tidy-imports]``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import LINKS, ROOT

LINT: Final = "from importlinter.cli import lint_imports_command; lint_imports_command()"
LAYERS: Final = "Layers: a module imports only from its own package and from the layers below"
DECISIONS: Final = "Decisions do no I/O, and know nothing of each other"
CYCLES: Final = "No import cycle, neither of modules nor of packages"
BARE: Final = "Only users import the bare kgroup"


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a checkout, with the contracts of its pyproject.toml."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package and of the contracts, for a test to spoil."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("kgroup", *(Path(link).name for link in LINKS)):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    return tmp_path


def test_every_import_keeps_to_the_contracts() -> None:
    """No import of the package breaks a contract; each package behind a link is read too."""
    ended = lint_imports(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for contract in (LAYERS, DECISIONS, CYCLES, BARE):
        assert f"{contract} KEPT" in ended.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("kgroup/nowhere.py", "", LAYERS),
        ("watchers/processing.py", "from kgroup.records import fetcher", LAYERS),
        ("kgroup/background/flag.py", "def late(): import kgroup.spark.source", LAYERS),
        ("kgroup/client/error_policy.py", "import trio", DECISIONS),
        ("kgroup/client/lease.py", "import kgroup.assignors", DECISIONS),
        ("kgroup/broker/groups/machine.py", "from kgroup.broker.log import Log", DECISIONS),
        ("kgroup/client/error_policy.py", "import kgroup.client.cluster", CYCLES),
        ("generation/lifecycle.py", "import kgroup.generation.generation", CYCLES),
        ("kgroup/cli/broker.py", "from kgroup import ConsumerGroup", BARE),
    ],
)
def test_a_broken_contract_is_found(checkout: Path, module: str, line: str, contract: str) -> None:
    """An import that a contract forbids breaks it, wherever in the module it stands."""
    with (checkout / module).open("a") as file:
        file.write(f"\n{line}\n")
    ended = lint_imports(checkout)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"{contract} BROKEN" in ended.stdout
