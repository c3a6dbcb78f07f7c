"""Logins that change while a group reads from a real Kafka: sessions, tokens, passwords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
import trio.lowlevel
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kgroup.config import GroupConfig
from kgroup.events import (
    CommitRefused,
    Event,
    GenerationEnded,
    GenerationStarted,
    RecordSourceFailed,
)
from kgroup.group import ConsumerGroup
from kgroup.notifier import Notifier
from kgroup.records import consumer_login
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.testing.admin import RELIABLE_PRODUCER, create_topic
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener, unsecured_token
from tests.behaviour.rights import EVERYONE_READS, grant
from tests.brokers import unique

pytestmark = [pytest.mark.real_kafka, pytest.mark.xdist_group("logins")]
USERS = {"alice": "alice-secret", "rosa": "rosa-secret"}
LIFETIME = 3.0
"""Seconds of a session; two of them pass in each test."""
STEP = 0.1
SOON = 150.0
"""As long as a test takes at most, and as the member's lease and its commits wait: no test is about
what runs out while a broker on a busy machine restarts.
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    """A Kafka whose sessions are short, on which every user may read everything."""
    with RealKafka(secure=SecureListener(USERS, session_lifetime=LIFETIME)) as kafka:
        grant(kafka.bootstrap_servers, *EVERYONE_READS)
        yield kafka


class Reader:
    """A group that reads for some time, and what became of it."""

    def __init__(self, kafka: RealKafka, security: Security) -> None:
        self.topic = unique("logins")
        self.read: Counter[str] = Counter()
        self.events: list[Event] = []
        self.begun = trio.Event()
        self._changed = Notifier()
        self.config = GroupConfig(
            bootstrap_servers=kafka.secure_servers,
            group_id=self.topic,
            topics=[self.topic],
            security=security,
            session_timeout=SOON,
            rebalance_timeout=SOON,
            commit_timeout=SOON,
        )

    async def run(self, last: str) -> None:
        """Read and commit each batch until a record arrives."""
        async with ConsumerGroup(self.config, on_event=self._reported) as group:
            generation = await group.next()
            self.begun.set()
            async for batch in generation.records():
                self.read.update((message.value() or b"").decode() for message in batch)
                self._changed.notify()
                await generation.commit({batch.partition: batch.next_offset})
                if last in self.read:
                    return

    def _reported(self, event: Event) -> None:
        self.events.append(event)
        self._changed.notify()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds; it is checked at each event and each batch."""
        while not holds():
            await self._changed.wait()

    @property
    def renewals(self) -> int:
        """How often records were read on with files that had changed."""
        faults = [event.reason for event in self.events if isinstance(event, RecordSourceFailed)]
        return sum("files of the certificates have changed" in reason for reason in faults)

    def count(self, kind: type[Event]) -> int:
        """How many events there were of a class."""
        return sum(isinstance(event, kind) for event in self.events)

    def check(self, records: int) -> None:
        """One generation read each record once, and no commit was refused."""
        story = "\n".join(map(str, self.events))
        assert self.count(GenerationStarted) == self.count(GenerationEnded) == 1, story
        assert self.read == Counter({str(number): 1 for number in range(records)}), story
        assert self.count(CommitRefused) == 0


async def read_for(kafka: RealKafka, readers: list[Reader], seconds: float) -> int:
    """Let them read what is written for so long; return how many records that was.

    A broker that is away meanwhile gets what was written once it is back.
    """
    steps = int(seconds / STEP)
    # Another producer may write a record twice if the broker goes away before it confirms it.
    # One that has met a broker without a leader, while that starts, soon looks for it again.
    settings = {
        **RELIABLE_PRODUCER,
        "bootstrap.servers": kafka.bootstrap_servers,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    producer = confluent_kafka.Producer(settings)
    for reader in readers:
        await trio.to_thread.run_sync(create_topic, kafka.bootstrap_servers, reader.topic, 1)
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            for reader in readers:
                nursery.start_soon(reader.run, str(steps - 1))
                await reader.begun.wait()
            for number in range(steps):
                for reader in readers:
                    producer.produce(reader.topic, str(number))
                producer.poll(0)
                await trio.sleep(STEP)
            await trio.to_thread.run_sync(producer.flush, abandon_on_cancel=True)
    return steps


async def test_sessions_are_renewed_while_groups_read(kafka: RealKafka) -> None:
    """By every mechanism: no rebalance, no record lost or repeated, no commit refused."""
    tokens = 0

    async def token() -> Token:
        nonlocal tokens
        tokens += 1
        await trio.lowlevel.checkpoint()
        return unsecured_token("alice", 2 * LIFETIME)

    secure = kafka.secure
    assert secure is not None
    by_token: dict[str, Any] = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "ca": secure.ca}
    readers = [
        Reader(kafka, secure.login("alice", "PLAIN")),
        Reader(kafka, secure.login("alice", "SCRAM-SHA-256")),
        Reader(kafka, Security(**by_token, token=token)),
    ]
    begun = trio.current_time()
    records = await read_for(kafka, readers, 2.5 * LIFETIME)
    tokens_in_turn = (trio.current_time() - begun) / (2 * LIFETIME)
    for reader in readers:
        reader.check(records)
    assert 2 <= tokens <= 3 + 2 * tokens_in_turn, tokens


async def test_a_password_changes_while_a_group_reads(kafka: RealKafka) -> None:
    """The function is called again, for both planes: no rebalance and no record lost."""
    passwords = ["rosa-secret"]
    secure = kafka.secure
    assert secure is not None
    security = Security(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        ca=secure.ca,
        credentials=lambda: Credentials("rosa", passwords[-1]),
    )
    reader = Reader(kafka, security)

    def change() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        passwords.append("rosa-changed")
        changes = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("rosa", info, b"rosa-changed")]
        )
        for changed in changes.values():
            changed.result(SOON)

    async def change_later() -> None:
        await reader.begun.wait()
        await trio.to_thread.run_sync(change)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change_later)
        records = await read_for(kafka, [reader], 2.5 * LIFETIME)
    reader.check(records)


def issue(authority: trustme.CA) -> tuple[str, str]:
    """A client's certificate with its chain, and its key."""
    issued = authority.issue_cert("client.test", common_name="client")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return chain.decode(), issued.private_key_pem.bytes().decode()


@pytest.fixture
def files(tmp_path: Path) -> Mapping[str, Path]:
    """Where the client has its certificates."""
    return {name: tmp_path / f"{name}.pem" for name in ("ca", "certificate", "key")}


async def test_certificates_and_authority_change_while_a_group_reads(
    tmp_path: Path, files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both planes take new files without a restart: no rebalance, no record lost or repeated.

    The broker that comes back has a certificate of the new authority, and trusts no other.
    """
    monkeypatch.setattr(consumer_login, "FILES_INTERVAL", 0.2)
    old, new = trustme.CA(), trustme.CA()
    trusted = tmp_path / "trusted.pem"

    def trust(*authorities: trustme.CA) -> str:
        return "".join(one.cert_pem.bytes().decode() for one in authorities)

    def give(*authorities: trustme.CA) -> None:
        certificate, key = issue(authorities[-1])
        files["ca"].write_text(trust(*authorities))
        files["key"].write_text(key)
        files["certificate"].write_text(certificate)

    trusted.write_text(trust(old, new))
    give(old)
    listener = SecureListener(
        client_certificates=True,
        authority=old,
        properties={"listener.name.secure.ssl.truststore.location": str(trusted)},
    )
    given: dict[str, Any] = {name: str(path) for name, path in files.items()}
    security = Security(protocol="SSL", **given)
    with RealKafka(secure=listener) as kafka:
        await trio.to_thread.run_sync(grant, kafka.bootstrap_servers, *EVERYONE_READS)
        reader = Reader(kafka, security)

        def restart() -> None:
            trusted.write_text(trust(new))
            listener.authority = new
            kafka.restart()

        async def change() -> None:
            await reader.begun.wait()
            await reader.until(lambda: reader.read)
            give(old, new)
            await reader.until(lambda: reader.renewals)
            await trio.to_thread.run_sync(restart)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            records = await read_for(kafka, [reader], 2.5 * LIFETIME)
        reader.check(records)
