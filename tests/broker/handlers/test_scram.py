"""Passwords of SCRAM, changed by an admin client; the errors are in ``tests/conformance``."""

from __future__ import annotations

import hashlib
from typing import Any

from kgroup.security.settings import SaslMechanism
from tests.broker.security.logins import PASSWORD, log_in, log_in_by_scram, secured
from tests.broker.wire import Client

SHA_256 = SaslMechanism.SCRAM_SHA_256
SHA_512 = SaslMechanism.SCRAM_SHA_512
FAILED = 58


async def alter(client: Client, *, deletions: Any = (), upsertions: Any = ()) -> list[int]:
    """The errors of a change."""
    answer = await client.request(
        "alter_user_scram_credentials", 0, deletions=deletions, upsertions=upsertions
    )
    return [int(one.error_code) for one in answer.results]


async def test_a_password_is_changed() -> None:
    """The new one counts at once, for one mechanism; no client that has logged in is logged out."""
    async with secured() as (broker, admin):
        await log_in(admin)
        salted = hashlib.pbkdf2_hmac("sha256", b"new", b"salt", 8192)
        new = {"name": "alice", "mechanism": 1, "iterations": 8192, "salt": b"salt"}
        assert await alter(admin, upsertions=[{**new, "salted_password": salted}]) == [0]
        for mechanism, password, code in (
            (SHA_256, "new", 0),
            (SHA_256, PASSWORD, FAILED),
            (SHA_512, PASSWORD, 0),
        ):
            client = await Client.open(broker)
            async with client.stream:
                assert await log_in_by_scram(client, mechanism, password=password) == code
        described = await admin.request(
            "describe_user_scram_credentials", 0, users=[{"name": "alice"}]
        )
        (alice,) = described.results
        infos = [(one.mechanism, one.iterations) for one in alice.credential_infos]
        assert infos == [(1, 8192), (2, 4096)]


async def test_a_user_is_created_and_removed() -> None:
    """A user of SCRAM alone exists as long as one mechanism is left."""
    async with secured() as (broker, admin):
        await log_in(admin)
        salted = hashlib.pbkdf2_hmac("sha512", b"b", b"", 4096)
        bob = {"name": "bob", "mechanism": 2}
        new = {**bob, "iterations": 4096, "salt": b"", "salted_password": salted}
        for change, code in (({"upsertions": [new]}, 0), ({"deletions": [bob]}, FAILED)):
            assert await alter(admin, **change) == [0]
            client = await Client.open(broker)
            async with client.stream:
                found = await log_in_by_scram(client, SHA_512, user="bob", password="b")  # noqa: S106 # of a test
                assert found == code
        assert list(broker.cluster.security.users.with_verifiers()) == ["alice"]
