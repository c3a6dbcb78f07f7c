"""Builds the clients in Go and Java, once for each run of the benchmarks.

The programs are in the user's cache folder; Go's own cache makes building them again quick.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, final

from benchmarks.java import compiled, program
from kgroup.testing.java import KafkaUnavailableError, cache_folder

FOLDER: Final = Path(__file__).resolve().parent
GO: Final = ("go", "/usr/local/go/bin/go")
"""The command, and the place where Go's installer puts it."""
HEAP: Final = "512m"


@final
class MissingError(Exception):
    """A client cannot be run on this machine; the message says what is missing."""


@cache
def go_program(name: str) -> Path:
    """Build a program in Go, and return its path.

    Raises:
        MissingError: there is no Go, or its modules cannot be fetched.
    """
    go = next(filter(None, map(shutil.which, GO)), None)
    if go is None:
        raise MissingError(f"there is no Go (looked for {' and '.join(GO)})")
    target = cache_folder() / "benchmarks" / name
    command = [go, "build", "-o", str(target), f"./{name}"]
    built = subprocess.run(
        command, cwd=FOLDER / "golang", capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise MissingError(f"it cannot be built: {built.stderr.strip()}")
    return target


def go_version(module: str) -> str:
    """A module of go.mod, and its version."""
    text = (FOLDER / "golang" / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(module)} (v[\w.-]+)", text)
    return f"{module} {found[1] if found else '?'}"


@cache
def java_program() -> list[str]:
    """Compile the Java client, and return its command.

    Raises:
        MissingError: there is no Java, or its jars cannot be fetched.
    """
    classes = Path(_classes().name)
    try:
        class_path = compiled(sorted((FOLDER / "java").glob("*.java")), classes)
        return program(class_path, "JavaClient", heap=HEAP)
    except (KafkaUnavailableError, subprocess.CalledProcessError) as error:
        raise MissingError(str(error)) from error


@cache
def _classes() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="kgroup-benchmark-classes-")
