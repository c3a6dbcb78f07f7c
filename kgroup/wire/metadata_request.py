"""The fields of a Metadata request, which differ between versions.

Source: KIP-430, KIP-516, KIP-700.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["metadata_fields"]


def metadata_fields(topics: Collection[str] | None, version: int) -> Mapping[str, Any]:
    """The fields of a request that creates no topic and asks for no permissions.

    Args:
        topics: the names of the topics; None for all.
        version: the version of the request.
    """
    # KIP-516 added the topic's id.
    more = {"topic_id": None} if version >= 10 else {}
    fields: dict[str, Any] = {
        "topics": None if topics is None else [{**more, "name": name} for name in sorted(topics)],
        "allow_auto_topic_creation": False,
    }
    if 8 <= version <= 10:  # KIP-430 put it there, KIP-700 took it out again
        fields["include_cluster_authorized_operations"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    return fields
