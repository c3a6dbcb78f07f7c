"""The oldest version of TLS: both planes accept it, and none below it."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import Final, final

import confluent_kafka
import pytest
import trustme

from kgroup.errors import ConfigError
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.settings import Security, TlsVersion
from kgroup.security.ssl_contexts import client_context

AUTHORITY: Final = trustme.CA()
HOST: Final = "127.0.0.1"
PATIENCE: Final = 120.0
VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}
CASES: Final = [
    (TlsVersion.TLS_1_2, TlsVersion.TLS_1_2),
    (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    (TlsVersion.TLS_1_3, TlsVersion.TLS_1_2),
    (TlsVersion.TLS_1_3, TlsVersion.TLS_1_3),
]
"""What the client demands, and what the broker has."""


@final
class Broker:
    """Takes the handshake of one client."""

    def __init__(self, version: TlsVersion) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert(HOST).configure_cert(self._context)
        self._context.minimum_version = self._context.maximum_version = VERSIONS[version]
        self._listener = socket.create_server((HOST, 0))
        self._thread = threading.Thread(target=self._take)
        self.port: Final = self._listener.getsockname()[1]
        self.taken = threading.Event()
        self.version: str | None = None

    def __enter__(self) -> Broker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _take(self) -> None:
        self._listener.settimeout(PATIENCE)
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        with (
            connection,
            suppress(OSError),
            self._context.wrap_socket(connection, server_side=True) as stream,
        ):
            # In TLS 1.3 the client has accepted the handshake once it says something.
            if stream.recv(1):
                self.version = stream.version()
        self.taken.set()


def demanding(version: TlsVersion) -> Security:
    """The settings of a client."""
    ca = AUTHORITY.cert_pem.bytes().decode()
    return Security(protocol="SSL", ca=ca, minimum_version=version)


@pytest.mark.parametrize(("demanded", "has"), CASES)
def test_the_groups_own_connections(demanded: TlsVersion, has: TlsVersion) -> None:
    """An older version is refused in the handshake."""
    with Broker(has) as broker, suppress(ssl.SSLError):
        connection = socket.create_connection((HOST, broker.port))
        with client_context(demanding(demanded)).wrap_socket(
            connection, server_hostname=HOST
        ) as stream:
            stream.send(b"x")
    assert broker.version == (has.value if has.value >= demanded.value else None)


@pytest.mark.parametrize(("demanded", "has"), CASES)
def test_librdkafka(demanded: TlsVersion, has: TlsVersion) -> None:
    """It accepts and refuses the same."""
    with Broker(has) as broker:
        consumer = confluent_kafka.Consumer(
            {
                **librdkafka_settings(demanding(demanded)),
                "bootstrap.servers": f"{HOST}:{broker.port}",
                "group.id": "g",
                "log_level": 0,
            }
        )
        assert broker.taken.wait(PATIENCE)
        consumer.close()
    assert broker.version == (has.value if has.value >= demanded.value else None)


@pytest.mark.parametrize("wrong", ["TLSv1.1", "1.3", None, 3])
def test_other_versions_are_refused(wrong: object) -> None:
    """There is none below 1.2 that a client should accept."""
    with pytest.raises(ConfigError, match="minimum_version"):
        Security(protocol="SSL", minimum_version=wrong)  # type: ignore[arg-type]
