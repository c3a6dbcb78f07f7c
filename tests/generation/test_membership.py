"""What a generation says of its member."""

from __future__ import annotations

import attrs
import pytest

from kgroup.generation.generation import Generation, MembershipView
from kgroup.threaded import Generation as ThreadedGeneration
from kgroup.types import Membership
from tests.generation.bench import MEMBERSHIP

STATIC = attrs.evolve(MEMBERSHIP, group_instance_id="i-1", leader=True)


@pytest.mark.parametrize("membership", [MEMBERSHIP, STATIC])
@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Membership)])
def test_it_says_all_that_the_membership_does(membership: Membership, name: str) -> None:
    """Each attribute of a membership is shown under its own name."""
    assert getattr(MembershipView(membership), name) == getattr(membership, name)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Membership)])
def test_nobody_changes_it(name: str) -> None:
    """What a generation says of its member can only be read."""
    view = MembershipView(MEMBERSHIP)
    with pytest.raises(AttributeError):
        setattr(view, name, "other")
    assert getattr(view, name) == getattr(MEMBERSHIP, name)


@pytest.mark.parametrize("generation", [Generation, ThreadedGeneration])
def test_both_generations_tell_it_alike(generation: type[MembershipView]) -> None:
    """A generation of an event loop and one of threads add nothing of their own to it."""
    assert {field.name for field in attrs.fields(Membership)}.isdisjoint(vars(generation))
    assert issubclass(generation, MembershipView)
