"""ApiVersions lists all APIs in every version."""

from __future__ import annotations

import pytest

from kgroup.broker.apis import APIS
from kgroup.wire.versions import API_KEYS
from tests.broker.wire import connected


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_all_apis(version: int) -> None:
    """The response has all APIs of the table, sorted by number; Produce is named from 0 on.

    librdkafka before 2.11 sends records uncompressed to a broker that does not name it.
    """
    async with connected() as (_, client):
        names = {"client_software_name": "a.b-c", "client_software_version": "1"}
        answer = await client.request("api_versions", version, **(names if version >= 3 else {}))
        assert int(answer.error_code) == 0
        assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == (
            sorted(
                (API_KEYS[name], 0 if name == "produce" else api.lowest, api.highest)
                for name, api in APIS.items()
            )
        )


@pytest.mark.parametrize(("name", "version"), [("-a", "1"), ("a", ""), ("a b", "1"), ("a", "1_")])
async def test_software_has_to_name_itself_properly(name: str, version: str) -> None:
    """From version 3 on, a client name or version that Kafka refuses is INVALID_REQUEST."""
    async with connected() as (_, client):
        answer = await client.request(
            "api_versions", 3, client_software_name=name, client_software_version=version
        )
        assert (int(answer.error_code), answer.api_keys) == (42, ())
