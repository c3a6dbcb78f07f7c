"""Programs on Spark run in processes of their own, with small JVMs that always end."""

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
"""Programs of tests run a query once or twice, so that compiling it would cost the most."""
TIMEOUT: Final = 300.0
"""Seconds for a step of a program on Spark; its JVM alone takes 5 on an idle machine."""


@final
@attrs.frozen
class SparkMachine:
    """Spark as an administrator has set it up; programs take their settings from there.

    Attributes:
        home: the folder with all of its files.
        folder: the working directory of programs.
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
    """Make a machine whose programs have this master; at its end their JVMs are ended.

    Args:
        master: Spark's master.
        java: its Java; ``find_java()`` by default.
    """
    with SparkHome(java=java) as home:
        own = {"spark.master": master, "spark.sql.warehouse.dir": home.folder / "warehouse"}
        lines = [f"{name} {value}" for name, value in {**SETTINGS, **ONCE, **own}.items()]
        (home.folder / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
        yield SparkMachine(home)
