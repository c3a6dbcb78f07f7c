"""Where real sockets are refused, and for how long."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from kgroup.errors import UsageError
from kgroup.testing.simulation.socket_guard import no_sockets

UNGUARDED = socket.socket.__init__


def test_sockets_are_refused_until_the_last_of_several_runs_has_ended() -> None:
    """A run that ends, in another context, does not allow sockets to one that goes on."""

    def other_run() -> None:
        with no_sockets():
            pass

    with no_sockets():
        copy_context().run(other_run)
        with pytest.raises(UsageError, match="real socket"):
            socket.socket()
    socket.socket().close()


def test_only_the_context_of_the_run_is_refused() -> None:
    """Code beside the simulation opens sockets and pairs of sockets as ever."""
    beside = copy_context()
    with no_sockets():
        beside.run(socket.socket).close()
        for one in beside.run(socket.socketpair):
            one.close()


def test_nothing_is_left_of_it() -> None:
    """After a run that failed, too, the class is as before."""
    with pytest.raises(LookupError), no_sockets():
        assert socket.socket.__init__ is not UNGUARDED
        raise LookupError
    assert socket.socket.__init__ is UNGUARDED


def test_what_others_have_put_around_sockets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch from before the run works in it and stays; so does one that is made in the run."""
    seen: list[str] = []

    def patched(name: str) -> Callable[..., None]:
        opens = socket.socket.__init__

        def opens_and_notes(self: socket.socket, *arguments: Any, **options: Any) -> None:
            seen.append(name)
            opens(self, *arguments, **options)

        return opens_and_notes

    before = patched("before")
    monkeypatch.setattr(socket.socket, "__init__", before)
    beside = copy_context()
    with no_sockets():
        beside.run(socket.socket).close()
        assert seen == ["before"]
    assert socket.socket.__init__ is before
    with no_sockets():
        within = patched("within")
        monkeypatch.setattr(socket.socket, "__init__", within)
    assert socket.socket.__init__ is within
