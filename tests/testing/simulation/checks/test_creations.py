"""How the invariants treat a topic that is deleted and created again."""

from __future__ import annotations

from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.assignments import Assignments
from kgroup.testing.simulation.checks.failover import Failover
from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.checks.repetitions import Repetitions
from kgroup.testing.simulation.checks.starts import StartPositions
from kgroup.testing.simulation.checks.table import CHECKS
from tests.testing.simulation.checks.stories import P0, P1, Story, pair


def recreated() -> Story:
    """a has worked on the old topic, which was recreated without the members' knowledge."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.hand_out("a", P0, 5, 9)
    story.delete()
    story.create_again()
    return story


def shared_again() -> Story:
    """The same, after the rebalance that follows."""
    story = recreated()
    story.end("a")
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def broken(story: Story) -> list[str]:
    """The violations of any invariant."""
    return [what for kind in CHECKS for what in story.broken(kind)]


def test_a_group_that_begins_with_the_new_topic_breaks_nothing() -> None:
    """Records of the deleted topic are not lost, and the new topic is read from its start."""
    story = shared_again()
    story.work("a", P0, 0, 3)
    story.move()
    story.group("Stable")
    story.end_workload()
    story.settle({P0: 3, P1: 0})
    assert broken(story) == []


def test_records_of_the_deleted_topic_do_not_count_for_the_new_one() -> None:
    """To process record 0 of the old topic is not to process record 0 of the new one."""
    story = shared_again()
    story.hand_out("a", P0, 0, 5, creation=1)
    story.process("a", P0, 0, 5, creation=1)
    story.commit("a", P0, 5)
    assert story.broken(Losses) == [
        "a committed orders-0 at 5, but the record at offset 0 has not been processed"
    ]


def test_what_is_processed_while_there_is_no_topic_counts_for_nothing() -> None:
    """The batch that a program still holds belongs to the deleted topic."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.delete()
    story.process("a", P0, 0, 5)
    story.end("a")
    story.create_again()
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    story.work("a", P0, 0, 2)
    assert broken(story) == []


def test_an_older_generation_may_read_on() -> None:
    """An older generation cannot know; only what it skips is excused."""
    story = recreated()
    story.process("a", P0, 5, 9, creation=1)
    story.hand_out("a", P0, 9, 12)
    story.process("a", P0, 9, 12)
    story.commit("a", P0, 12)
    assert broken(story) == []
    story.hand_out("a", P0, 13, 14)
    assert len(story.broken(Losses)) == 1


def after_an_older_ones_commit() -> Story:
    """An older generation has committed beyond the new log, and the next one has begun."""
    story = recreated()
    story.process("a", P0, 5, 9, creation=1)
    story.commit("a", P0, 9)
    story.end("a")
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def test_the_next_generation_starts_at_an_older_ones_commit() -> None:
    """The next generation starts at that commit, or by the reset rule if the log is shorter."""
    story = after_an_older_ones_commit()
    story.emit("a", OffsetReset, partition=P0, offset=0, reason="", skipped=True)
    story.work("a", P0, 0, 3)
    story.move()
    story.group("Stable")
    assert broken(story) == []


def test_nothing_is_excused_once_the_group_has_begun_with_the_new_topic() -> None:
    """A generation that joined later must start, read and commit by the new log only."""
    story = shared_again()
    story.hand_out("a", P0, 2, 4)
    story.process("a", P0, 2, 4)
    story.commit("a", P0, 4)
    assert story.broken(StartPositions) != []
    assert story.broken(Losses) != []


def test_a_start_in_the_deleted_topic_breaks_it() -> None:
    """The offsets of the deleted topic were deleted with it."""
    story = recreated()
    story.end("a")
    story.end("b")
    story.form({"a": [P0], "b": [P1]})
    story.report_assigned("a", start_offsets={P0: 5})
    assert len(story.broken(StartPositions)) == 1


def test_a_commit_on_the_new_topic_must_survive() -> None:
    """Only commits of the deleted topic may be lost in a failover."""
    story = shared_again()
    story.work("a", P0, 0, 3)
    story.move({})
    assert len(story.broken(Failover)) == 1


def test_a_record_of_the_new_topic_comes_again_only_for_a_reason() -> None:
    """Commits and hand-overs of the deleted topic do not count, those of the new one do."""
    story = shared_again()
    story.work("a", P0, 0, 3)
    assert story.broken(Repetitions) == []
    story.hand_out("a", P0, 2, 3)
    assert len(story.broken(Repetitions)) == 1


def test_a_partition_deleted_during_a_rebalance_may_be_assigned() -> None:
    """A deleted partition may be assigned only if it existed when all members had joined."""
    for gone_before, faults in ((False, 0), (True, 1)):
        story = pair()
        if gone_before:
            story.delete()
            story.create_again(1)
        story.generation_id += 1
        story.group("CompletingRebalance")
        if not gone_before:
            story.delete()
            story.create_again(1)
        story.group("Stable", topics={"orders": 1})
        assert len(story.broken(Assignments)) == faults


def test_an_older_ones_commit_may_be_where_the_new_log_ends() -> None:
    """What lies before that commit is excused although no batch follows it; what follows is not."""
    for end, faults in ((9, 0), (10, 2)):
        story = after_an_older_ones_commit()
        story.end_workload()
        story.settle({P0: end, P1: 0})
        assert len(broken(story)) == faults
