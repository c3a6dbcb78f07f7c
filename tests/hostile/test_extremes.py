"""Hostile changes: each changes one field only, every field is reached, every change shows."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from kgroup.wire.entity_writer import entity_writer
from kgroup.wire.versions import API_KEYS, SUPPORTED_REQUESTS
from tests.hostile.extremes import body, changes, choose, sample

NEWEST = [
    *(
        load_request_schema(API_KEYS[api], spoken.highest)
        for api, spoken in SUPPORTED_REQUESTS.items()
    ),
    *(
        load_response_schema(API_KEYS[api], spoken.highest)
        for api, spoken in SUPPORTED_REQUESTS.items()
    ),
    *(
        load_response_schema(API_KEYS[api], spoken.lowest)
        for api, spoken in SUPPORTED_REQUESTS.items()
    ),
]


def honest(entity: Any) -> bytes:
    """The bytes of kgroup's own writer."""
    parts: list[bytes] = []
    kind: Any = type(entity)
    entity_writer(kind)(parts, entity)
    return b"".join(parts)


@pytest.mark.parametrize(
    "entity_type", NEWEST, ids=lambda kind: f"{kind.__name__}{kind.__version__}"
)
def test_a_change_touches_one_field_only(entity_type: Any) -> None:
    """The bytes before the change are the writer's."""
    entity = sample(entity_type)
    plain = honest(entity)
    assert body(entity, None) == plain
    different = 0
    for change in changes(entity):
        made = body(entity, change)
        different += made != plain
        assert len(made) < len(plain) * 400 + 40_000
    assert different


def test_every_field_is_reached() -> None:
    """Nested fields, items of arrays and tagged fields are among the paths."""
    entity = sample(load_response_schema(API_KEYS["metadata"], 13))
    paths = {".".join(map(str, change.path)) for change in changes(entity)}
    assert {"brokers", "brokers.0.host", "topics.0.partitions.0.leader_id", "error_code"} <= paths
    fetched = sample(load_response_schema(API_KEYS["fetch"], 16))
    assert any("node_endpoints" in change.path for change in changes(fetched))


def test_choices_repeat() -> None:
    """The same seed chooses the same changes."""
    entity = sample(load_response_schema(API_KEYS["join_group"], 9))
    first, second = (
        [str(choose(random, entity)) for _ in range(50)] for random in (Random(3), Random(3))
    )
    assert first == second
    assert len(set(first)) > 20
