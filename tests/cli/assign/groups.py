"""Groups as JSON objects, for the tests of ``kgroup assign``."""

from __future__ import annotations

import json
from typing import Any

ORDERS = {"orders": {"partitions": 4}}


def member(member_id: str, *topics: str, **fields: Any) -> dict[str, Any]:
    """A member that subscribes to these topics."""
    return {"member_id": member_id, "topics": list(topics), **fields}


def owning(member_id: str, topic: str, *numbers: int) -> dict[str, Any]:
    """A member that owns these partitions of the topic that it subscribes to."""
    return member(member_id, topic, owned=[[topic, number] for number in numbers])


def line(assignor: str = "range", **fields: Any) -> bytes:
    """A recorded call, by default with two members and four partitions."""
    call = {
        "assignor": assignor,
        "topics": ORDERS,
        "members": [member("b", "orders"), member("a", "orders")],
        **fields,
    }
    return json.dumps(call).encode() + b"\n"
