"""Invariant 7: no record is lost."""

from __future__ import annotations

from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.losses import Losses
from tests.testing.simulation.checks.stories import P0, P1, Story, pair


def test_a_commit_before_processing_breaks_it() -> None:
    """A commit may not pass unprocessed records; each loss is reported once."""
    story = pair()
    story.work("b", P1, 0, 1)
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 3)
    story.commit("a", P0, 5)
    story.commit("a", P0, 5)
    (what,) = story.broken(Losses)
    assert what == "a committed orders-0 at 5, but the record at offset 3 has not been processed"


def test_a_start_that_passes_a_record_is_named() -> None:
    """A commit and the end say whose ``starts`` returned it, until that record is processed."""
    story = Story()
    story.own_starts = True
    story.begin("a")
    story.form({"a": [P0, P1]})
    story.seek("a", 3)
    story.report_assigned("a", start_offsets={P0: 3, P1: 0})
    story.work("a", P1, 0, 2)
    story.work("a", P0, 3, 5)
    story.settle({P0: 5, P1: 3})
    why = "has not been processed: a in generation 1 began at 3, which its `starts` had returned"
    assert story.broken(Losses) == [
        f"a committed orders-0 at 5, but the record at offset 0 {why}",
        "orders-1 ends at 3, but the record at offset 2 has not been processed",
    ]


def test_a_record_that_another_member_processed_is_not_lost() -> None:
    """Records may be processed by any member and in any order."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    for offset in (1, 0, 4, 2):
        story.process("a", P0, offset, offset + 1)
    story.end("a")
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.hand_out("b", P0, 0, 5)
    story.process("b", P0, 3, 4)
    story.commit("b", P0, 5)
    assert story.broken(Losses) == []


def test_a_gap_between_two_batches_breaks_it() -> None:
    """No record may be missing between two batches, even if the program reports nothing."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.hand_out("a", P0, 6, 7)
    (what,) = story.broken(Losses)
    assert "got records of orders-0 from 6 on, right after those before 5" in what


def test_what_is_not_processed_or_not_committed_at_the_end_breaks_it() -> None:
    """At the end every record must be processed and committed."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.settle({P0: 6, P1: 2})
    assert story.broken(Losses) == [
        "orders-0 ends at 6, but the record at offset 5 has not been processed",
        "orders-0 ends at 6, but is committed only at 5",
        "orders-1 ends at 2, but the record at offset 0 has not been processed",
        "orders-1 ends at 2, but is committed only at 0",
    ]


def test_a_program_that_reports_nothing_loses_everything() -> None:
    """Its first commit passes what has not been processed, and so does the end."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.commit("a", P0, 5)
    story.settle({P0: 5, P1: 1})
    assert story.broken(Losses) == [
        "a committed orders-0 at 5, but the record at offset 0 has not been processed",
        "orders-1 ends at 1, but the record at offset 0 has not been processed",
        "orders-1 ends at 1, but is committed only at 0",
    ]


def test_the_first_commit_is_checked() -> None:
    """What a commit passes before any record was processed is lost, even if the topic goes."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.commit("a", P0, 5)
    story.work("b", P1, 0, 1)
    story.delete()
    (what,) = story.broken(Losses)
    assert what == "a committed orders-0 at 5, but the record at offset 0 has not been processed"


def test_where_nothing_can_be_read_nothing_is_lost() -> None:
    """A program that reports nothing is not blamed for empty logs."""
    story = pair()
    story.settle({P0: 0, P1: 0})
    assert story.broken(Losses) == []


def test_a_group_that_was_left_by_all_has_to_process_what_it_read() -> None:
    """Members that leave for good lose the records after their last commit."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.group("Empty", {}, topics={})
    story.settle({P0: 6})
    assert story.broken(Losses) == [
        "orders-0 ends at 6, but the record at offset 5 has not been processed",
        "orders-0 ends at 6, but is committed only at 5",
    ]


def test_topics_that_the_group_does_not_read_do_not_count() -> None:
    """Records of other topics cannot be lost."""
    story = pair()
    story.group("Stable", topics={"payments": 1})
    story.settle({P0: 5})
    assert story.broken(Losses) == []


def test_with_latest_earlier_records_are_not_lost() -> None:
    """With ``latest`` records before the start position do not count."""
    for rule, faults in (("earliest", 1), ("latest", 0)):
        story = pair()
        story.auto_offset_reset = rule
        story.open("a")
        story.process("b", P1, 0, 1)
        story.emit("a", OffsetReset, partition=P0, offset=4, reason="", skipped=False)
        story.commit("a", P0, 4)
        assert len(story.broken(Losses)) == faults
