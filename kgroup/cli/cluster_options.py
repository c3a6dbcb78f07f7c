"""Options that the commands for operating a cluster share: its address, the time-out, the output.

``clustered`` adds them to a command and turns every failure of the cluster into an error of one
line. Ctrl-C and SIGTERM end a command as shells expect, with 130 and 143.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from kgroup import bounds
from kgroup.cli.admin_client import ClusterError
from kgroup.cli.options import Number, config_option, one_line, servers
from kgroup.errors import KgroupError, shown
from kgroup.types import IsolationLevel

__all__ = [
    "LIVE",
    "clustered",
    "group_ids",
    "isolation_option",
    "json_option",
    "signals_held",
    "text",
    "write_json",
]

TIMEOUT: Final = bounds.seconds(1, 3600)
LIVE: Final = bounds.seconds(0.1, 3600)
"""Seconds between two refreshes."""
_DEFAULT_TIMEOUT: Final = 10.0
_SIGNALLED: Final = 128
"""Shells report a process that a signal ended as this plus the signal's number."""
_NAME: Final = bounds.text()


def clustered(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a connection, and report failures in one line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with ended_by_signals():
            try:
                command(*args, **options)
            except (ClusterError, KgroupError) as error:
                raise click.ClickException(one_line(error)) from error

    for option in (
        click.option(
            "--timeout",
            type=Number(TIMEOUT),
            default=_DEFAULT_TIMEOUT,
            show_default=True,
            help="Seconds to wait for each answer of the cluster.",
        ),
        config_option,
        click.option(
            "--bootstrap-servers",
            metavar="HOST:PORT,...",
            callback=servers,
            required=True,
            help="The cluster.",
        ),
    ):
        run = option(run)
    return run


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for a program: one object on one line."
)


def write_json(value: Mapping[str, Any]) -> None:
    """Print an object on one line."""
    click.echo(json.dumps(value, allow_nan=False))


def isolation_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--isolation-level``, with its help."""
    return click.option(
        "--isolation-level",
        "isolation",
        type=click.Choice([one.value for one in IsolationLevel]),
        default=IsolationLevel.READ_UNCOMMITTED.value,
        show_default=True,
        callback=lambda context, option, value: IsolationLevel(value),
        help=text,
    )


def text(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A callback for a name: check that Kafka's protocol can carry it.

    Raises:
        BadParameter: it is blank, too long or no text.
    """
    del context, option
    if value is not None and not _NAME.holds(value):
        raise click.BadParameter(f"{shown(value)} is refused: {_NAME.allowed}")
    return value


def group_ids(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """A callback for names of groups: check each, and leave out repetitions.

    Raises:
        BadParameter: as ``text``.
    """
    for value in values:
        text(context, option, value)
    return tuple(dict.fromkeys(values))


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM leave the block by an exception, and then end the process quietly."""
    with _handling(_end):
        yield


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM wait until the function is called that the block gets.

    So that what a command has begun is done as a whole. A second signal does not wait: what was
    begun may hang in a pipe that nobody reads.
    """
    received: list[int] = []

    def hold(number: int, frame: types.FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            _end(number, frame)

    def end() -> None:
        if received:
            _end(received[0], None)

    with _handling(hold):
        yield end


@contextmanager
def _handling(handler: Callable[[int, types.FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals; a program that calls this handles its own
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def _end(number: int, frame: types.FrameType | None) -> NoReturn:
    del frame
    # A further one must not interrupt what is now being closed.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_SIGNALLED + number)
