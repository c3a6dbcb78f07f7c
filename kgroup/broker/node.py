"""One broker of a cluster, as handlers see it: its address, and the coordinators that it runs.

``kgroup.broker.cluster_state`` has the state that all brokers share, ``kgroup.broker.endpoint`` a
broker's connections and listeners.
"""

from __future__ import annotations

from typing import Final, final

import trio

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.purgatory import Alarm, GroupPurgatory
from kgroup.broker.transaction_coordinator import TransactionCoordinator
from kgroup.types import BrokerAddress


@final
class Node:
    """A broker.

    Attributes:
        node_id: its id.
        groups: the groups that it coordinates.
        transactions: the transactional ids that it coordinates.
        transaction_alarm: aborts transactions that take too long.
        address: the address that clients connect to.
    """

    def __init__(
        self,
        address: BrokerAddress,
        coordinator: GroupCoordinatorService,
        transactions: TransactionCoordinator,
    ) -> None:
        self.node_id: Final = address.node_id
        self.groups: Final = GroupPurgatory(coordinator)
        self.transactions: Final = transactions
        self.transaction_alarm: Final = Alarm(
            lambda: transactions.next_timer,
            lambda: transactions.expire(trio.current_time()),
        )
        self.address = address

    def set_address(self, host: str, port: int) -> None:
        """Change the address that clients connect to."""
        self.address = BrokerAddress(self.node_id, host, port, self.address.rack)
