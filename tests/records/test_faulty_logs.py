"""librdkafka on a log that holds a malformed batch."""

from __future__ import annotations

import crc32c
import pytest

from kgroup import broker
from kgroup.broker.batches import HEADER
from kgroup.errors import FetchError
from kgroup.types import TopicPartition
from tests.records import environments

P = TopicPartition("t", 0)
AT_ONCE = {"group.initial.rebalance.delay.ms": 0}


async def test_a_malformed_batch_is_an_error_and_no_record_comes_twice() -> None:
    """What librdkafka makes of a batch with a right CRC is not handed out if it goes back."""
    async with broker.serve(settings=AT_ONCE) as running:
        await running.create_topic("t")
        for first in (0, 5):
            await running.append("t", 0, [b"%027d" % at for at in range(first, first + 5)])
        log, _ = running.cluster.topics.log_and_replicas("t", 0)
        data = bytearray(log._batches[1].data)
        second = HEADER.size + 1 + (data[HEADER.size] >> 1)
        data[second] = 250  # the second record's length, as a varint of more than one byte
        data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
        object.__setattr__(log._batches[1], "data", bytes(data))
        async with environments.embedded(running).source() as source:
            source.assign(1, {P: 0})
            source.open(1, [P])
            offsets: list[int] = []
            with pytest.raises(FetchError, match=r"offset \d came where 6 was next"):
                while True:
                    offsets += [m.offset() for m in (await source.receive(1, [P], 10)).messages]
            assert offsets == list(range(6))
