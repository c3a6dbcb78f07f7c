"""Where real sockets are refused, and for how long."""

from __future__ import annotations

import socket
from contextvars import copy_context

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
