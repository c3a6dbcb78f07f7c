"""Where programs on Spark run as processes of their own: small JVMs that end for sure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import attrs

from kgroup.testing.spark.home import SparkHome
from kgroup.testing.spark.java import Java
from kgroup.testing.spark.session import SETTINGS
from tests.conftest import ROOT

ONCE: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Programs of tests run a query once or twice: compiling it would be the most of its cost."""
TIMEOUT: Final = 300.0
"""Seconds for what a program on Spark does; on a machine at rest its JVM alone takes 5."""


@final
@attrs.frozen
class SparkMachine:
    """Spark as an administrator has set it up; programs take their settings from there.

    Attributes:
        home: the folder of it all.
        folder: programs run in it.
        python: the interpreter.
    """

    home: SparkHome
    folder: Path = ROOT
    python: Path = Path(sys.executable)

    def variables(self) -> Mapping[str, str]:
        """The process environment."""
        return {**os.environ, **self.home.environment(), "PYTHONUNBUFFERED": "1"}


@contextmanager
def spark_machine(master: str = "local[1]", *, java: Java | None = None) -> Iterator[SparkMachine]:
    """A machine whose programs have this master, and their JVMs end when it is left.

    Args:
        master: Spark's.
        java: what it has; ``find_java()`` by default.
    """
    with SparkHome(java=java) as home:
        own = {"spark.master": master, "spark.sql.warehouse.dir": home.folder / "warehouse"}
        lines = [f"{name} {value}" for name, value in {**SETTINGS, **ONCE, **own}.items()]
        (home.folder / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
        yield SparkMachine(home)
