"""The three protocols by which Kafka's consumers have formed groups, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.testing.simulation.coordination import NewCoordination
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.schemes.classic_coordination import ClassicWithOwners
from kgroup.testing.simulation.schemes.commanded import commanded_member
from kgroup.testing.simulation.schemes.self_balancing import self_balancing_member
from kgroup.testing.simulation.schemes.zookeeper_coordination import (
    BrokerCoordination,
    ZooKeeperCoordination,
)


@final
@attrs.frozen(kw_only=True)
class Scheme:
    """A group protocol: the program of a member, and what runs beside the members."""

    name: str
    about: str
    worker: Worker
    new_coordination: NewCoordination


SCHEMES: Final[Mapping[str, Scheme]] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="zookeeper",
            about="every member watches ZooKeeper and takes its own share",
            worker=self_balancing_member,
            new_coordination=ZooKeeperCoordination,
        ),
        Scheme(
            name="broker",
            about="a coordinator, elected among the brokers, watches ZooKeeper and assigns",
            worker=commanded_member,
            new_coordination=BrokerCoordination,
        ),
        Scheme(
            name="classic",
            about="members join at a coordinator, and one of them assigns",
            worker=default_worker,
            new_coordination=ClassicWithOwners,
        ),
    )
}
"""By name, in the order in which Kafka had them."""
