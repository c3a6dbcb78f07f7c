"""Compiles Java sources of this folder against Kafka's jars, with a compiler from Maven Central."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kgroup.testing.java import QUICK, jars, java_command, kafka_class_path

ECJ: Final = "org.eclipse.jdt:ecj:3.45.0"
"""Eclipse's compiler, because the Java runtime from pip has none."""
LANGUAGE: Final = "17"


def compiled(sources: Iterable[Path], classes: Path) -> str:
    """Compile sources into a folder; return the class path with it and Kafka's jars.

    Raises:
        KafkaUnavailableError: there is no Java, or no jars.
        subprocess.CalledProcessError: they do not compile.
    """
    (ecj,) = jars([ECJ], "Eclipse's compiler")
    kafka = kafka_class_path()
    # Not --release, because the runtime lacks the descriptions of older releases.
    compile_them = ["-jar", str(ecj), "-source", LANGUAGE, "-target", LANGUAGE, "-nowarn"]
    compile_them += ["-cp", kafka, "-d", str(classes), *map(str, sources)]
    subprocess.run([*java_command(options=QUICK), *compile_them], check=True, stdout=sys.stderr)
    return os.pathsep.join([str(classes), kafka])


def program(
    class_path: str, main_class: str, *, heap: str, options: Sequence[str] = ()
) -> list[str]:
    """The command that runs a class, with the JIT of a long run and few log lines."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [*java_command(heap=heap, options=[quiet, *options]), "-cp", class_path, main_class]
