"""Groups of several members: hand-over under a steady load, on both brokers."""

from __future__ import annotations

from itertools import pairwise

from kgroup.events import CommitRefused
from tests.behaviour.stage import Member, SteadyProducer, stage
from tests.brokers import Kafka

PARTITIONS = 6


def shared_by(*members: Member) -> bool:
    """Whether these members own all partitions, each of them some, in one generation."""
    owned = [member.owned() for member in members]
    return (
        min(owned) > 0
        and sum(owned) == PARTITIONS
        and len({member.generation.generation_id for member in members}) == 1
    )


async def test_hand_over_loses_and_repeats_nothing(kafka: Kafka) -> None:
    """While members come and go every record is processed, none twice, in order."""
    async with stage(kafka) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS)
        producer.start()
        ledger = here.ledger

        async def until_shared_by(*members: Member) -> None:
            await ledger.until(
                lambda: shared_by(*members), f"not shared by {[it.name for it in members]}"
            )
            now = {(member.name, member.generation.epoch) for member in members}
            await ledger.until(
                lambda: now.issubset((entry.member, entry.epoch) for entry in ledger.entries),
                f"not all of {now} process",
            )

        one = here.start("one")
        await until_shared_by(one)
        two = here.start("two")
        await until_shared_by(one, two)
        three = here.start("three")
        await until_shared_by(one, two, three)
        await two.leave()
        await until_shared_by(one, three)

        produced = await producer.stop()
        await ledger.until(lambda: len(ledger.entries) >= produced, "not everything is processed")
        await one.leave()
        await three.leave()

        assert sorted(map(int, ledger.values())) == list(range(produced))
        for partition in here.partitions(PARTITIONS):
            offsets = ledger.offsets(partition)
            assert all(later == before + 1 for before, later in pairwise(offsets))
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
        assert not any(member.told(CommitRefused) for member in (one, two, three))
        for member in (one, two, three):
            epochs = [generation.epoch for generation in member.generations]
            assert epochs == sorted(set(epochs))
