"""Offsets committed inside a producer's transaction, under this generation's identity.

librdkafka's consumer would stamp them with whatever generation it is in; here the bytes that name
the generation are made from the membership itself.

Source: KIP-447; librdkafka's ``rd_kafka_consumer_group_metadata_write``.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from confluent_kafka import Consumer

from kgroup.errors import UsageError
from kgroup.types import Membership

_MAGIC: Final = b"CGMDv2:"
_NO_GENERATION: Final = -1
_GROUP: Final = "kgroup-format-check"
_INSTANCE: Final = "instance"


def group_metadata(membership: Membership) -> bytes:
    """The bytes that ``Producer.send_offsets_to_transaction`` takes for this generation.

    Raises:
        UsageError: the installed librdkafka writes them in another format.
    """
    _check_format()
    return _pack(
        membership.group_id,
        membership.generation_id,
        membership.member_id,
        membership.group_instance_id,
    )


def _pack(group_id: str, generation_id: int, member_id: str, instance: str | None) -> bytes:
    static = b"\x01" if instance is None else b"\0" + instance.encode() + b"\0"
    return b"".join(
        (
            _MAGIC,
            struct.pack("=i", generation_id),
            group_id.encode() + b"\0",
            member_id.encode() + b"\0",
            static,
        )
    )


@cache
def _check_format() -> None:
    """Compare with what librdkafka itself writes for a consumer that never connects."""
    for instance in (None, _INSTANCE):
        static = {} if instance is None else {"group.instance.id": instance}
        consumer = Consumer({"group.id": _GROUP, "bootstrap.servers": "", **static})
        try:
            theirs = bytes(consumer.consumer_group_metadata())
        finally:
            consumer.close()
        ours = _pack(_GROUP, _NO_GENERATION, "", instance)
        if theirs != ours:
            raise UsageError(
                "this librdkafka writes group metadata in another format than kgroup knows"
                f" ({theirs!r}, expected {ours!r}): offsets cannot be committed in a transaction"
                " with this version of confluent-kafka; install one from 2.16 to below 3"
            )
