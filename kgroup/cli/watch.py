"""``--watch``: shows the same again and again, on a terminal in place of what was shown before."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console

from kgroup.cli.admin_client import ClusterError, LoginRefusedError
from kgroup.cli.cluster_options import LIVE, write_json
from kgroup.cli.options import Number
from kgroup.cli.tables import console, plain
from kgroup.client.error_policy import LOGIN_INTERVAL

__all__ = ["show", "watch_option"]

_DEFAULT: Final = 2.0

watch_option: Final = click.option(
    "--watch",
    metavar="[SECONDS]",
    is_flag=False,
    flag_value=_DEFAULT,
    type=Number(LIVE),
    help=f"Show it again every so many seconds, until Ctrl-C; {_DEFAULT:g} if no number is given.",
)


def show(
    fetch: Callable[[], tuple[dict[str, Any], Callable[[Console], None]]],
    *,
    as_json: bool,
    every: float | None,
) -> None:
    """Print what a function fetches, once or until a signal.

    Once it has succeeded, a later failure is printed and the next attempt follows. If logins are
    refused, each pause is twice as long as the last one, up to `LOGIN_INTERVAL`: many refusals
    may lock the user out.

    Args:
        fetch: returns the object for JSON, and prints it for people.
        as_json: which of the two to print; with ``every``, JSON has the time, ``at``, in UTC.
        every: seconds between two calls; None for one call.

    Raises:
        ClusterError: the first call failed.
    """
    first, pause = True, every
    while True:
        shown = console()
        try:
            found, printed = fetch()
        except ClusterError as error:
            if first or pause is None:
                raise
            click.echo(plain(f"{_now()}: {error}"), err=True)
            refused = isinstance(error, LoginRefusedError)
            pause = max(pause, min(2 * pause, LOGIN_INTERVAL)) if refused else every
        else:
            pause = every
            if as_json:
                write_json(found if every is None else {"at": _utc(), **found})
            elif every is None:
                printed(shown)
            else:
                _refresh(shown, printed)
        if pause is None:
            return
        first = False
        time.sleep(pause)


def _refresh(shown: Console, printed: Callable[[Console], None]) -> None:
    """Print it in one piece, so that a terminal does not flicker."""
    with shown.capture() as captured:
        printed(shown)
    shown.clear()  # does nothing where the output is no terminal
    click.echo(f"{_now()}\n{captured.get()}")


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
