"""The archive of Kafka's classes: made once, used by every JVM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kgroup.testing import archive
from kgroup.testing.archive import make_archive
from kgroup.testing.java import (
    KAFKA_VERSION,
    QUICK,
    KafkaUnavailableError,
    archive_of,
    archived,
    java_command,
    kafka_class_path,
    run_java,
)
from kgroup.testing.tools import TOOLS


def test_a_program_starts_from_it(tmp_path: Path) -> None:
    """Java's and Kafka's classes are loaded from the archive, and Java prints nothing about it."""
    assert make_archive() == archive_of(kafka_class_path())
    loaded = tmp_path / "loaded"
    log = f"-Xlog:class+load:file={loaded}"
    ended = run_java(TOOLS["kafka-topics"], "--version", options=[log])
    assert (ended.stdout, ended.stderr) == (f"{KAFKA_VERSION}\n", "")
    sources = dict(re.findall(r" (\S+) source: (.*)", loaded.read_text()))
    assert sources[TOOLS["kafka-topics"]] == sources["java.lang.String"] == "shared objects file"


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first process makes the archive, and all others use it."""
    monkeypatch.setattr(archive, "archive_of", lambda _: tmp_path / "cache" / "kafka.jsa")
    monkeypatch.setattr(archive, "_loaded", lambda _: iter(["no.such.Class"]))
    monkeypatch.setattr(archive, "java_command", lambda **_: ["false"])
    with pytest.raises(
        KafkaUnavailableError, match="could not make the archive of Kafka's classes"
    ):
        make_archive()
    monkeypatch.setattr(archive, "_dump", lambda _, made: made.write_text("classes"))
    made = make_archive()
    monkeypatch.setattr(archive, "_dump", lambda *_: pytest.fail("again"))
    assert make_archive() == made
    assert {path.suffix for path in made.parent.iterdir()} <= {".jsa", ".lock"}


def test_jars_that_have_moved_use_it_too(tmp_path: Path) -> None:
    """Another environment with the same jars has the same archive, and Java accepts it there."""
    make_archive()
    jars = [Path(path) for path in kafka_class_path().split(os.pathsep)]
    common = os.path.commonpath([jar.parent for jar in jars])
    moved = [tmp_path / jar.relative_to(common) for jar in jars]
    for jar, place in zip(jars, moved, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(jar, place)
    class_path = os.pathsep.join(map(str, moved))
    assert archive_of(class_path) == archive_of(kafka_class_path())
    loaded = tmp_path / "loaded"
    options = [*archived(class_path), *QUICK, f"-Xlog:class+load:file={loaded}"]
    program = ("-cp", class_path, TOOLS["kafka-topics"], "--version")
    subprocess.run([*java_command(options=options), *program], check=True, capture_output=True)
    sources = dict(re.findall(r" (\S+) source: (.*)", loaded.read_text()))
    assert sources[TOOLS["kafka-topics"]] == "shared objects file"
    os.utime(moved[0])
    assert archive_of(class_path) != archive_of(kafka_class_path())


def test_without_it_java_runs_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an archive Java gets no option for one."""
    class_path = kafka_class_path()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert archived(class_path) == []
