"""The login of a client of librdkafka that blocks until a function of the program has given it.

For the clients of commands and of tests, which make a few requests each. The records thread may not
wait for the function, and has a way of its own (``kgroup.records.consumer_login``).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import trio

from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.wire.logins import Logins
from kgroup.worker_thread import WorkerThread

_THREAD: Final = "kgroup-login"


async def look_up(security: Security) -> Token | Credentials:
    """Call the function of ``Security``; once more if it fails.

    Raises:
        AuthenticationError: it has failed; the text says how.
    """
    return await Logins(security, WorkerThread).for_new_connection()


def look_up_in_thread(security: Security) -> Token | Credentials:
    """The same for callers that block, also in a thread with an event loop, as tests do."""
    with ThreadPoolExecutor(1, thread_name_prefix=_THREAD) as pool:
        return pool.submit(trio.run, look_up, security).result()


def login_settings(
    security: Security,
    looked_up: Callable[[Security], Token | Credentials] = look_up_in_thread,
) -> dict[str, Any]:
    """The properties of a login that ``librdkafka_settings`` leaves out.

    Args:
        security: the settings.
        looked_up: how the function is called; it blocks. For later tokens librdkafka calls it too,
            in threads of its own. The first one is ready, because a client that is being made
            and gets none waits for 10 s, and then fails without a reason.

    Raises:
        AuthenticationError: the function has failed, if ``looked_up`` raises that.
    """
    if not security.dynamic:
        return {}
    usable = looked_up(security)
    if isinstance(usable, Credentials):
        return {"sasl.username": usable.username, "sasl.password": usable.password.reveal()}
    first = [usable]
    return {"oauth_cb": lambda _: _as_librdkafka(first.pop() if first else looked_up(security))}


def _as_librdkafka(token: Token | Credentials) -> tuple[str, float, str, dict[str, str]]:
    assert isinstance(token, Token)  # the mechanism is OAUTHBEARER
    return token.value.reveal(), token.expires_at, token.principal, dict(token.extensions)
