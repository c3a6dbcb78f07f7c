"""Partitions that an assignment in the making has moved."""

from __future__ import annotations

from kgroup.assignors.movements import Movements


def test_one_that_came_goes_back_instead() -> None:
    """Of those that went the other way the lowest goes back, and then no more."""
    movements = Movements()
    movements.move(0, 8, 1, 2)
    movements.move(0, 7, 1, 2)
    assert movements.instead(0, 9, 2, 1) == 7
    movements.move(0, 7, 2, 1)
    assert movements.instead(0, 9, 2, 1) == 8
    movements.move(0, 8, 2, 1)
    assert movements.instead(0, 9, 2, 1) == 9


def test_only_of_the_same_topic() -> None:
    """What another topic's partitions did makes no difference."""
    movements = Movements()
    movements.move(0, 7, 1, 2)
    assert movements.instead(1, 9, 2, 1) == 9


def test_a_second_move_is_one_from_the_first_owner() -> None:
    """A partition that went from 1 to 2 to 3 counts as one from 1 to 3."""
    movements = Movements()
    movements.move(0, 7, 1, 2)
    movements.move(0, 7, 2, 3)
    assert movements.instead(0, 9, 3, 1) == 7
    assert movements.instead(0, 9, 2, 1) == 9
    assert movements.instead(0, 7, 3, 3) == 7
