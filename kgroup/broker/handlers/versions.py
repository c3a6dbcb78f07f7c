"""ApiVersions: the APIs and versions that this broker offers.

Source: KIP-35, KIP-511; Kafka's ``ApiVersionsRequest``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from kgroup.broker.request_context import RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode
from kgroup.wire.versions import API_KEYS

_NAMES_SOFTWARE_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(
    context: RequestContext, offered: Iterable[tuple[str, int, int]]
) -> ResponseFields:
    """Answer ApiVersions; ``offered`` has kio's name, lowest and highest version of each API."""
    if context.version >= _NAMES_SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(context.request.client_software_name)
        and _SOFTWARE.fullmatch(context.request.client_software_version)
    ):
        return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": ()}
    if context.login is not None:
        context.login.versions_answered()
    return {"error_code": ErrorCode.NONE, "api_keys": _keys(offered)}


def fallback(lowest: int, highest: int) -> ResponseFields:
    """The response, in version 0, to an ApiVersions of a version that is not offered.

    It lists only the versions of ApiVersions that are, so that the client can try again.
    """
    keys = _keys([("api_versions", lowest, highest)])
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": keys}


def _keys(offered: Iterable[tuple[str, int, int]]) -> list[dict[str, Any]]:
    keys = [
        {"api_key": API_KEYS[name], "min_version": lowest, "max_version": highest}
        for name, lowest, highest in offered
    ]
    return sorted(keys, key=lambda key: key["api_key"])
