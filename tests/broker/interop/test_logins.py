"""Foreign clients log in to the embedded broker over TLS, by each mechanism that they know."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from kgroup.broker import BrokerSecurity, EmbeddedBroker, serve
from kgroup.testing.tools import run_tool
from tests.broker.interop import login_program
from tests.broker.interop.clients import AT_ONCE
from tests.broker.interop.login_program import CLIENTS, MECHANISMS, PASSWORD, TOPIC, USER
from tests.broker.interop.members import KAFKA_PYTHON
from tests.broker.interop.tools import together

SECURITY: Final = BrokerSecurity(users={USER: PASSWORD}, mechanisms=MECHANISMS, tls=True)
MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
"""Java's classes for logins."""


def authority(broker: EmbeddedBroker, folder: Path) -> Path:
    """The file with the authority that signed the broker's certificate."""
    path = folder / "ca.pem"
    path.write_text(broker.ca or "", encoding="utf-8")
    return path


@KAFKA_PYTHON
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_logs_in_produces_and_reads(client: str, tmp_path: Path) -> None:
    """With each login it produces a record, and its group reads all records so far."""
    async with serve("localhost", settings=AT_ONCE, security=SECURITY) as broker:
        await broker.create_topic(TOPIC, 1)
        ended = await trio.run_process(
            [
                sys.executable,
                login_program.__file__,
                client,
                broker.bootstrap_servers,
                str(authority(broker, tmp_path)),
            ],
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        printed = ended.stdout.decode()
        assert ended.returncode == 0, printed
        assert json.loads(printed.splitlines()[-1]) == [1, 2, 3, 4], printed


@pytest.mark.real_kafka
async def test_java_logs_in(tmp_path: Path) -> None:
    """The Java client's tools do, by each mechanism."""
    async with serve("localhost", security=SECURITY) as broker:
        await broker.create_topic(TOPIC, 1)
        ca = authority(broker, tmp_path)

        async def listed(mechanism: str) -> str:
            options = (
                f'unsecuredLoginStringClaim_sub="{USER}"'
                if mechanism == "OAUTHBEARER"
                else f'username="{USER}" password="{PASSWORD}"'
            )
            module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
            config = tmp_path / f"{mechanism}.properties"
            lines = [
                "security.protocol=SASL_SSL",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={ca}",
                f"sasl.mechanism={mechanism}",
                f"sasl.jaas.config={module} required {options};",
            ]
            config.write_text("\n".join(lines), encoding="utf-8")
            arguments = ("--list", "--command-config", str(config))
            run = partial(run_tool, broker.bootstrap_servers, "kafka-topics", *arguments)
            return (await trio.to_thread.run_sync(run, abandon_on_cancel=True)).stdout

        found = await together(*(partial(listed, mechanism) for mechanism in MECHANISMS))
        assert [text.split() for text in found] == [[TOPIC]] * len(MECHANISMS)
