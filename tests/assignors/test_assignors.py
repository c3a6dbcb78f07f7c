"""The built-in assignors by name, and a custom one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import pytest

from kgroup.assignors import BUILTIN, all_cooperative, resolve
from kgroup.assignors.validation import check_assignments
from kgroup.config import BUILTIN_ASSIGNORS, GroupConfig
from kgroup.errors import UsageError
from kgroup.interfaces import Assignor
from kgroup.testing.simulation.checks.assignments import _COOPERATIVE
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition


@attrs.frozen
class OneTakesAll:
    """Gives each topic to its first member; the others stand by."""

    name: str = "one-takes-all"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Give each topic to its first subscriber."""
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in topics.values():
            first = next((m for m in members if topic.name in m.topics), None)
            if first is not None:
                partitions = [TopicPartition(topic.name, n) for n in range(topic.partitions)]
                given[first.member_id].extend(partitions)
        return given


ANSWERS: Final = """
from random import Random
from kgroup.assignors import BUILTIN
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

random = Random(20)
names = [f"topic-{number}" for number in range(12)]
racks = [f"rack-{number}" for number in range(4)]
topics = {
    name: TopicInfo(
        name=name,
        partitions=9,
        racks=tuple(tuple(random.sample(racks, 2)) for _ in range(9)),
    )
    for name in names
}
every = [TopicPartition(name, number) for name in names for number in range(9)]
for listed in (12, 7):
    members = [
        MemberSubscription(
            member_id=f"member-{number}",
            topics=tuple(random.sample(names, listed)),
            owned=tuple(random.sample(every, 15)),
            generation_id=random.randrange(3),
            rack_id=random.choice(racks),
        )
        for number in range(10)
    ]
    for assignor in BUILTIN.values():
        answer = assignor.assign(topics, members)
        print({member: [str(one) for one in share] for member, share in answer.items()})
"""
"""A program that prints what every built-in assignor answers for two groups."""
MEMBERS: Final = [MemberSubscription(member_id=m, topics=("t",)) for m in ("m1", "m2")]


def test_a_custom_assignor_is_twenty_lines() -> None:
    """A class with a name and assign() is an assignor, and the group can use its answer."""
    custom = resolve(["range", OneTakesAll()])["one-takes-all"]
    topics = {"t": TopicInfo(name="t", partitions=2)}
    answer = custom.assign(topics, MEMBERS)
    assert check_assignments(custom.name, topics, MEMBERS, answer).assignments == {
        "m1": (TopicPartition("t", 0), TopicPartition("t", 1)),
        "m2": (),
    }


def test_the_configuration_knows_the_built_in_ones() -> None:
    """Every name that the configuration accepts is an assignor's, and the other way round."""
    assert set(BUILTIN_ASSIGNORS) == set(BUILTIN)
    for name, assignor in BUILTIN.items():
        assert isinstance(assignor, Assignor)
        assert assignor.name == name


@pytest.mark.parametrize("name", BUILTIN)
def test_property_files_know_the_built_in_ones(name: str) -> None:
    """Its name, and the Java client's class of that name, give the built-in assignor."""
    java = f"org.apache.kafka.clients.consumer.{type(BUILTIN[name]).__name__}"
    for given in (name, java):
        properties = {
            "bootstrap.servers": "a:1",
            "group.id": "g",
            "partition.assignment.strategy": given,
        }
        assert GroupConfig.from_properties(properties, topics=["t"]).assignors == (name,)


def test_the_simulator_knows_which_are_cooperative() -> None:
    """Invariant 1 allows a partition to change owners in two steps for exactly these."""
    assert {name for name in BUILTIN if all_cooperative([BUILTIN[name]])} == _COOPERATIVE


def test_preference_is_kept() -> None:
    """Assignors keep the given order."""
    assert list(resolve(["roundrobin", "range"])) == ["roundrobin", "range"]


@pytest.mark.parametrize(
    "given", [["sticky-ish"], ["range", "range"], ["range", OneTakesAll("range")]]
)
def test_names_must_be_known_and_differ(given: list[str | Assignor]) -> None:
    """An unknown name, or one name for two assignors, is refused."""
    with pytest.raises(UsageError, match="range"):
        resolve(given)


def test_hash_seeds_do_not_matter() -> None:
    """Processes whose hashes of strings differ give the same answers."""
    outputs = set()
    for seed in ("1", "2", "3"):
        ended = subprocess.run(
            [sys.executable, "-c", ANSWERS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(ended.stdout)
    assert len(outputs) == 1
    assert all("topic-11-8" in line for line in outputs.pop().splitlines()[:3])


def test_assignors_load_no_numpy() -> None:
    """numpy, which only large groups need, is not imported with the assignors."""
    code = "import kgroup.assignors, sys; print('numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
