"""An embedded Kafka broker for quick starts, tests and simulation. It keeps nothing on disk."""

from __future__ import annotations

from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.embedded_broker import EmbeddedBroker
from kgroup.broker.embedded_cluster import EmbeddedCluster
from kgroup.broker.faults import InjectedFault
from kgroup.broker.log_reader import LogReader
from kgroup.broker.records import NewRecord
from kgroup.broker.security.acls import Acl
from kgroup.broker.security.settings import BrokerSecurity
from kgroup.broker.server import in_memory, in_memory_cluster, serve, serve_cluster
from kgroup.records.memory import BatchRecords, StoredRecord

__all__ = [
    "Acl",
    "BatchRecords",
    "BrokerSecurity",
    "BrokerSettings",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "InjectedFault",
    "LogReader",
    "NewRecord",
    "StoredRecord",
    "in_memory",
    "in_memory_cluster",
    "serve",
    "serve_cluster",
]


def __dir__() -> list[str]:
    """The public names: completion shows none of the modules that define them."""
    return sorted(__all__)
