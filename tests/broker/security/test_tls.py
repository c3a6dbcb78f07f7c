"""TLS of the embedded broker: in memory, on sockets, and against clients that never finish."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio.testing
import trustme

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory, serve
from kgroup.errors import AuthenticationError, ConfigError
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context
from kgroup.wire.tls import open_tls
from tests.broker.security.logins import log_in, works
from tests.broker.wire import Client

USERS = {"alice": "alice-secret"}


async def encrypted(broker: EmbeddedBroker, stream: trio.abc.Stream) -> Client:
    """A client inside TLS, on a connection to the broker."""
    context = client_context(Security(protocol="SSL", ca=broker.ca))
    return Client(await open_tls(stream, context, broker.host, "broker"))


async def test_tls_and_a_login_in_memory(autojump_clock: trio.testing.MockClock) -> None:
    """A certificate is made for the broker's name in memory, and works in virtual time."""
    async with in_memory(security=BrokerSecurity(tls=True, users=USERS)) as broker:
        assert broker.cluster.security.protocol.value == "SASL_SSL"
        client = await encrypted(broker, await broker.open_stream(broker.host, broker.port))
        await log_in(client)
        assert await works(client)
        await client.stream.aclose()


async def test_tls_on_sockets() -> None:
    """Clients that trust the broker's authority read; others refuse its certificate."""
    async with serve(security=BrokerSecurity(tls=True)) as broker:
        client = await encrypted(broker, await trio.open_tcp_stream(broker.host, broker.port))
        assert await works(client)
        await client.stream.aclose()
        stream = await trio.open_tcp_stream(broker.host, broker.port)
        context = client_context(
            Security(protocol="SSL", ca=trustme.CA().cert_pem.bytes().decode())
        )
        with pytest.raises(AuthenticationError, match="was not accepted"):
            await open_tls(stream, context, broker.host, "broker")


async def test_a_client_certificate_names_the_user(tmp_path: Path) -> None:
    """The certificates are read from files, and the CN of the client's is its user."""
    authority = trustme.CA()
    server = authority.issue_cert("memory")
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    server.cert_chain_pems[0].write_to_path(str(chain))
    server.private_key_pem.write_to_path(str(key))
    security = BrokerSecurity(tls=True, certificate=chain, key=key, client_ca=ca)
    async with in_memory(security=security) as broker:
        assert broker.ca is None
        context = client_context(Security(protocol="SSL", ca=str(ca)))
        authority.issue_cert("unused", common_name="carol").configure_cert(context)
        stream = await broker.open_stream(broker.host, broker.port)
        client = Client(await open_tls(stream, context, broker.host, "broker"))
        assert await works(client)
        assert broker.end_sessions("bob") == 0
        assert broker.end_sessions("carol") == 1
        assert await client.is_closed()


async def test_a_slow_handshake_ends(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that never sends its hello is closed after 10 s."""
    async with in_memory(security=BrokerSecurity(tls=True)) as broker:
        client = await Client.open(broker)
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(10)
        assert "no TLS handshake within 10 s" in caplog.text


async def test_plain_text_on_a_tls_port(caplog: pytest.LogCaptureFixture) -> None:
    """Such a client is closed, and the log names the reason."""
    async with in_memory(security=BrokerSecurity(tls=True)) as broker:
        client = await Client.open(broker)
        await client.send("api_versions", 0)
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            while True:
                await client.frame()
        assert "the TLS handshake failed" in caplog.text


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"certificate": "c.pem"}, "certificate"),
        ({"client_ca": "c.pem"}, "client_ca"),
        ({"tls": True, "key": "k.pem"}, "key"),
        ({"tls": 1}, "tls"),
        ({"users": ["alice"]}, "users"),
        ({"users": {"alice": ""}}, "users"),
        ({"users": {"": "x"}}, "users"),
        ({"mechanisms": "PLAIN"}, "mechanisms"),
        ({"mechanisms": ["GSSAPI"]}, "mechanisms"),
        ({"session_lifetime": 0}, "session_lifetime"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], field: str) -> None:
    """The error names the setting, and never shows a password."""
    with pytest.raises(ConfigError, match=f"^{field}="):
        BrokerSecurity(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "field"), [("certificate", "certificate"), ("client_ca", "cl")])
async def test_files_that_cannot_be_read(tmp_path: Path, name: str, field: str) -> None:
    """The error names the setting."""
    (tmp_path / "empty.pem").write_text("")
    settings: dict[str, Any] = {name: tmp_path / "empty.pem"}
    with pytest.raises(ConfigError, match=f"^{field}"):
        async with in_memory(security=BrokerSecurity(tls=True, **settings)):
            pass


async def test_without_trustme_a_certificate_must_be_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigError, match=r"pip install 'kgroup\[kafka\]'"):
        async with in_memory(security=BrokerSecurity(tls=True)):
            pass
