"""A leader whose assignor is wrong sends no assignment to the other members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from trio.testing import MockClock

from kgroup.errors import InvalidAssignmentError
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.group.harness import harness


class Beyond:
    """An assignor that assigns a partition that does not exist."""

    name = "beyond"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Number partitions from 1."""
        names = [TopicPartition("topic", n + 1) for n in range(topics["topic"].partitions)]
        return {members[0].member_id: names}


async def test_a_wrong_assignment_is_refused_before_sync_group(autojump_clock: MockClock) -> None:
    """The error names the assignor, the member and the partition; the member leaves the group."""
    async with harness(2) as here:
        with pytest.raises(InvalidAssignmentError, match="assignor 'beyond' .*topic-2") as refusal:
            async with here.group(assignors=[Beyond()]) as group:
                await group.next()
        assert not here.requests_for("sync_group")
        ((_, left),) = here.requests_for("leave_group")
        assert f"member '{left.members[0].member_id}' gets topic-2" in str(refusal.value)


class Raising:
    """An assignor of which one method raises; the others do nothing."""

    name = "raising"

    def __init__(self, method: str) -> None:
        self._method = method

    def assign(self, *_: object) -> dict[str, list[TopicPartition]]:
        """Assign nothing."""
        self._raise_in("assign")
        return {}

    def user_data(self, *_: object) -> None:
        """Send nothing."""
        self._raise_in("user_data")

    def on_assignment(self, *_: object) -> None:
        """Take note of nothing."""
        self._raise_in("on_assignment")

    def _raise_in(self, method: str) -> None:
        if method == self._method:
            raise ValueError(method)


@pytest.mark.parametrize("method", ["user_data", "assign", "on_assignment"])
async def test_what_an_assignor_raises_is_raised_by_next(
    method: str, autojump_clock: MockClock
) -> None:
    """Each call of `next` raises it as it is, health has it, and the block raises nothing more."""
    async with harness() as here, here.group(assignors=[Raising(method)]) as group:
        for _ in range(2):
            with pytest.raises(ValueError, match=method):
                await group.next()
        health = group.health()
        assert not health.live
        assert f"ValueError: {method}" in health.reasons[0]
