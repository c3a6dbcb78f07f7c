"""Types of options that several commands share: bounded numbers, addresses, files, imports.

INVARIANT: a conversion ends with a value or with click's usage error of one line, which says what
was given and what is allowed, whatever a shell or a test passes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, final

import click

from kgroup import bounds
from kgroup.bounds import Bound
from kgroup.errors import ConfigError, short_repr
from kgroup.security.properties import Properties
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context

_STDIN: Final = "-"
SECRETS: Final = {
    "username": "KGROUP_USERNAME",
    "password": "KGROUP_PASSWORD",
    "key_password": "KGROUP_KEY_PASSWORD",
}
"""Fields of ``Security``, and the environment variables that set them beside ``--config``."""
_NO_FUNCTION: Final = (
    ". A command takes no function: it logs in with a client certificate, by SCRAM or PLAIN, or by"
    " OAUTHBEARER with a client's id and secret"
)
"""What an error about a login that only programs have adds in a command."""
_LONGEST: Final = 1000
"""The most characters of an error's text that are printed."""


@final
class WholeNumber(click.IntRange):
    """A whole number within bounds; the help shows them."""

    def __init__(self, bound: Bound) -> None:
        assert bound.least is not None
        assert bound.most is not None
        super().__init__(int(bound.least), int(bound.most))
        self._bound = bound

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error that names the bounds."""
        return _number(self, self._bound, value, param, ctx)


@final
class Number(click.FloatRange):
    """A number within bounds, never NaN; the help shows them."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound.least, bound.most)
        self._bound = bound

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error that names the bounds."""
        return _number(self, self._bound, value, param, ctx)


def _number(
    kind: click.IntRange | click.FloatRange,
    bound: Bound,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    if not isinstance(value, str) and bound.holds(value):
        return value  # a default
    try:
        return bound.read(str(value))
    except ValueError as error:
        kind.fail(f"{short_repr(value)} is refused: {error}", param, ctx)


@final
class FilePath(click.Path):
    """A path; one that no system call accepts is refused too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or a usage error."""
        if "\0" in os.fsdecode(value):
            self.fail(f"{short_repr(value)} is not a path: it has a NUL character", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except (OSError, ValueError) as error:
            self.fail(f"{short_repr(value)} is not a path: {error}", param, ctx)


@final
class InputFile(click.File):
    """A file to read bytes from, or ``-`` for standard input."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The open file, or a usage error."""
        try:
            if value == _STDIN:
                standard_input()
            elif "\0" in os.fsdecode(value):
                raise ValueError("it has a NUL character")
            return super().convert(value, param, ctx)
        except (OSError, ValueError) as error:
            self.fail(f"{short_repr(value)} cannot be read: {error}", param, ctx)


def standard_input() -> IO[bytes]:
    """Standard input, for bytes.

    Raises:
        UsageError: the process was started with standard input closed (``<&-``).
    """
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    return sys.stdin.buffer


def servers(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A callback for ``--bootstrap-servers``: check it as ``GroupConfig`` does, before any work.

    Raises:
        BadParameter: it is empty, or has an address that cannot be a broker's.
    """
    del context, option
    if value is None:
        return None
    try:
        bounds.refuse_servers("bootstrap_servers", bounds.servers(value))
    except ConfigError as error:
        raise click.BadParameter(
            f"{short_repr(error.value)} is refused: {error.allowed}"
        ) from error
    return value


def cluster_of(bootstrap_servers: str | None, file: str | os.PathLike[str] | None) -> str | None:
    """The cluster of a command: that of its option, or else of the file of ``--config``.

    As in Kafka's own commands, the option takes precedence over the file.

    Raises:
        UsageError: the file's property has a wrong value.
    """
    if bootstrap_servers is not None or file is None:
        return bootstrap_servers
    try:
        properties = Properties(file)
        with properties.naming_errors():
            found: str | None = properties.setting("bootstrap_servers")
            if found is not None:
                bounds.refuse_servers("bootstrap_servers", bounds.servers(found))
    except ConfigError as error:
        raise click.UsageError(f"--config {one_line(error)}") from None
    return found


def secrets_given(*fields: str) -> list[str]:
    """The names of the environment variables that are set, of those of these fields."""
    return [SECRETS[field] for field in fields if os.environ.get(SECRETS[field])]


def security_of(file: str | os.PathLike[str] | None) -> Security:
    """The settings of the connections of a command, from the file of ``--config`` if there is one.

    Raises:
        ConfigError: the file cannot be read, or a property is refused.
    """
    if file is None:
        return Security()
    return _security(Properties(file))


def _security(properties: Properties) -> Security:
    with _naming_variables():
        return Security.from_properties(properties, **_secrets())


def _secrets() -> dict[str, str]:
    """The fields that environment variables give."""
    variables = ((field, os.environ.get(name)) for field, name in SECRETS.items())
    return {field: text for field, text in variables if text}


@contextmanager
def _naming_variables() -> Iterator[None]:
    """Let an error about a field that an environment variable gave name the variable."""
    try:
        yield
    except ConfigError as error:
        if error.field not in _secrets():
            raise
        name = f"the environment variable {SECRETS[error.field]}"
        translated = ConfigError(name, error.value, error.allowed)
    else:
        return
    raise translated from None


def check_config(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A callback for ``--config``: check the file before any work.

    Raises:
        BadParameter: it, or a file that it names, cannot be read, or a property is refused.
    """
    del context, option
    if value is None:
        return None
    try:
        properties = Properties(value)
        security = _security(properties)
        if security.protocol.tls:
            # Of a file that cannot be read librdkafka would say less.
            with _naming_variables(), properties.naming_errors(_secrets()):
                client_context(security)
    except ConfigError as error:
        text = one_line(error)
        raise click.BadParameter(text + (_NO_FUNCTION if "token=..." in text else "")) from None
    return value


config_option: Final = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=FilePath(exists=True, dir_okay=False),
    callback=check_config,
    help="Properties of the connections, by the names of Kafka's Java client or of librdkafka,"
    f" bootstrap.servers among them. The environment variables {', '.join(SECRETS.values())} take"
    " precedence.",
)
"""``--config``, as ``--command-config`` of Kafka's own commands."""


def imported(path: str, wanted: str) -> Any:
    """Import the object ``MODULE:NAME`` from the current folder or Python's path.

    Args:
        path: the text of the option.
        wanted: the expected form, for the error.

    Raises:
        BadParameter: there is no such object, or importing the module fails, whatever it raises.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise click.BadParameter(f"{short_repr(path)} is not {wanted}")
    if "" not in sys.path:
        # As `python -m` does: a program's own modules are in the current folder.
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        known = isinstance(error, ImportError | AttributeError)
        reason = one_line(error) if known else with_kind(error)
        raise click.BadParameter(f"{short_repr(path)} cannot be imported: {reason}") from error


def plain(text: str) -> str:
    """Untrusted text without control characters for the terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)


def one_line(error: BaseException) -> str:
    """An error's text in one line, for a message; also if making the text raises.

    Names of clients and brokers' sentences may be in it, so it has no control characters.
    """
    try:
        text = plain(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001 # whatever the exception's own __str__ raises
        text = ""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def with_kind(error: BaseException) -> str:
    """The same, with the name of the error's class in front."""
    return f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
