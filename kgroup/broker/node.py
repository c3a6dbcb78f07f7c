"""One broker of a cluster, as its requests see it: who it is, and what it coordinates.

What all brokers share is ``kgroup.broker.cluster_state``'s; connections and listeners are
``kgroup.broker.endpoint``'s.
"""

from __future__ import annotations

from typing import Final, final

import trio

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.purgatory import Alarm, GroupPurgatory
from kgroup.broker.transaction_coordinator import Transactions
from kgroup.types import BrokerAddress as Address


@final
class Node:
    """A broker.

    Attributes:
        node_id: its id.
        groups: the groups that it coordinates.
        transactions: the transactional ids that it coordinates.
        transaction_alarm: aborts those of them that take too long.
        address: where clients find it.
    """

    def __init__(
        self, address: Address, coordinator: GroupCoordinatorService, transactions: Transactions
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
        """It is to be found at this address from now on."""
        self.address = Address(self.node_id, host, port, self.address.rack)
