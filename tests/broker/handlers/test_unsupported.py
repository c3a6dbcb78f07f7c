"""Requests that are offered and always refused: ACLs, the new group protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.broker.test_apis import errors_in
from tests.broker.wire import connected

ACL = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
ACL |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
NEW = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a"}
NEW |= {"host": "*", "operation": 3, "permission_type": 3}


@pytest.mark.parametrize(
    ("api", "version", "fields", "code"),
    [
        ("describe_acls", 3, ACL, 54),
        ("create_acls", 3, {"creations": [NEW, NEW]}, 54),
        ("delete_acls", 3, {"filters": [ACL]}, 54),
        (
            "consumer_group_heartbeat",
            1,
            {
                "group_id": "g",
                "member_id": "m",
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": timedelta(seconds=5),
                "subscribed_topic_names": ["t"],
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [],
            },
            35,
        ),
        (
            "consumer_group_describe",
            1,
            {"group_ids": ["g", "h"], "include_authorized_operations": False},
            35,
        ),
    ],
)
async def test_each_item_is_refused(
    api: str, version: int, fields: dict[str, Any], code: int
) -> None:
    """Each item of the request gets SECURITY_DISABLED or UNSUPPORTED_VERSION."""
    async with connected() as (_, client):
        answer = await client.request(api, version, **fields)
        assert set(errors_in(answer)) == {code}


async def test_the_refusal_of_acls_has_kafkas_text() -> None:
    """Each item of the response has Kafka's text beside the code."""
    words = "No Authorizer is configured on the broker"
    async with connected() as (_, client):
        assert (await client.request("describe_acls", 3, **ACL)).error_message == words
        answer = await client.request("create_acls", 3, creations=[NEW, NEW])
        assert [one.error_message for one in answer.results] == [words, words]
        answer = await client.request("delete_acls", 3, filters=[ACL])
        assert [one.error_message for one in answer.filter_results] == [words]
