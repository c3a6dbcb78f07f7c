"""The table of APIs: every offered API can be read, served and refused, and has a reason."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema

from kgroup.broker.apis import APIS
from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.response_versions import fit_response
from kgroup.error_codes import ErrorCode
from kgroup.wire.codec import encode_response
from kgroup.wire.entities import build, field_shape
from kgroup.wire.versions import API_KEYS
from tests.wire.entities import known_versions

EVERY_VERSION = [
    (api, version)
    for api in APIS
    for version in range(known_versions(api)[0], known_versions(api)[1] + 1)
]


def sample(entity_type: Any) -> dict[str, Any]:
    """Values for the fields of a request without defaults, with one item in each array."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(entity_type):
        shape = field_shape(field)
        if shape.entity is not None and "tag" not in field.metadata:
            item: Any = sample(shape.entity)
        elif field.metadata.get("kafka_type") == "string":
            item = "x"
        elif field.metadata.get("kafka_type") in {"int8", "int16", "int32", "int64"}:
            item = 0
        elif field.default is dataclasses.MISSING:
            kinds = {"bool": False, "bytes": b"", "records": b"", "uuid": None}
            item = kinds.get(field.metadata["kafka_type"], DURATION)
        else:
            continue
        fields[field.name] = [item] if shape.is_array else item
    return fields


DURATION = timedelta(seconds=1)


def errors_in(entity: Any) -> list[int]:
    """Every error code in an answer, at any depth."""
    found = []
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(item):
                found += errors_in(item)
            elif field.metadata.get("kafka_type") == "error_code":
                found.append(int(item))
    return found


@pytest.mark.parametrize("api", APIS)
def test_every_offered_api_is_known_and_explained(api: str) -> None:
    """Every row lies within kio's versions, gives a reason, and can be refused."""
    lowest, highest = known_versions(api)
    row = APIS[api]
    assert lowest <= row.lowest <= row.highest <= highest
    assert row.reason
    assert row.offers(row.lowest)
    assert not row.offers(row.highest + 1)
    assert api in ERROR_RESPONSES


def test_versions_that_end_early_have_a_reason_of_their_own() -> None:
    """A row says "the newest there is" exactly where it offers kio's newest."""
    for api, row in APIS.items():
        assert (row.highest == known_versions(api)[1]) == (row.reason == "the newest there is"), api


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_version_can_be_refused(api: str, version: int) -> None:
    """Each version that kio can write has a response with an error, offered or not."""
    request_type = load_request_schema(API_KEYS[api], version)
    request = build(request_type, sample(request_type))
    refused = ERROR_RESPONSES[api](request, ErrorCode.UNSUPPORTED_VERSION)
    answer = fit_response(api, version, refused)
    assert encode_response(api, version, answer, 1)
    assert set(errors_in(answer)) == {35}
