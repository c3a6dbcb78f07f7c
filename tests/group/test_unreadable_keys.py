"""Certificates and keys that cannot be read: the program learns it from its first ``next()``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.group import ConsumerGroup
from kgroup.security.settings import Security
from kgroup.security.ssl_context_cache import SslContexts
from kgroup.threaded.group import ConsumerGroup as ThreadedGroup

PASSWORD = "a-password"  # noqa: S105 # of a key that the test makes
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("key_password", {}, "the private key is encrypted; give its password"),
    ("key_password", {"key_password": "wrong"}, "it does not decrypt the private key"),
    ("ca", {"ca": "{folder}/none.pem", "key_password": PASSWORD}, "no certificates can be read"),
    ("ca", {"ca": "{folder}/empty.pem", "key_password": PASSWORD}, "no certificates can be read"),
    ("certificate", {"certificate": "{folder}/none.pem"}, "no certificate with its private key"),
    ("key", {"key": "{folder}/none.pem"}, "no certificate with its private key"),
]


@pytest.fixture
async def listening() -> Any:
    """A port that accepts connections and never answers."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        yield listener.socket.getsockname()[1]


def config(folder: Path, port: int, settings: dict[str, Any]) -> GroupConfig:
    """A group whose client certificate has an encrypted key."""
    authority = trustme.CA()
    issued = authority.issue_cert("client.test")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    (folder / "key.pem").write_bytes(encrypted)
    issued.cert_chain_pems[0].write_to_path(str(folder / "chain.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "empty.pem").write_text("")
    usual = {name: f"{{folder}}/{name}.pem" for name in ("ca", "key")}
    given = {**usual, "certificate": "{folder}/chain.pem", **settings}
    security = Security(
        protocol="SSL", **{name: value.format(folder=folder) for name, value in given.items()}
    )
    return GroupConfig(
        bootstrap_servers=f"127.0.0.1:{port}", group_id="g", topics=["t"], security=security
    )


@pytest.mark.parametrize(("field", "settings", "expected"), FAULTS)
async def test_what_cannot_be_read_ends_the_group_with_one_error(
    tmp_path: Path, listening: int, field: str, settings: dict[str, Any], expected: str
) -> None:
    """``next()`` raises a ConfigError that names the setting and has no secret."""
    with trio.fail_after(30):
        async with ConsumerGroup(config(tmp_path, listening, settings)) as group:
            with pytest.raises(ConfigError, match=expected) as raised:
                await group.next()
    assert raised.value.field == field
    assert PASSWORD not in str(raised.value)


async def test_the_threaded_group_raises_it_too(tmp_path: Path, listening: int) -> None:
    """The error reaches the program in its own thread, from ``next()``."""
    made = config(tmp_path, listening, {})

    def program() -> None:
        with ThreadedGroup(made) as group, pytest.raises(ConfigError, match="is encrypted"):
            group.next()

    with trio.fail_after(30):
        await trio.to_thread.run_sync(program)


def test_a_renewal_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """Half-written files do not end a group: the last certificates are used meanwhile."""
    security = config(tmp_path, 9093, {"key_password": PASSWORD}).security
    contexts = SslContexts(security)
    first = contexts.current()
    whole = (tmp_path / "key.pem").read_bytes()
    (tmp_path / "key.pem").write_bytes(whole[:40])
    assert contexts.current() is first
    (tmp_path / "key.pem").write_bytes(whole + b"\n")
    assert contexts.current() is not first
