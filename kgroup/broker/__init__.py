"""An embedded Kafka broker for quick starts, tests and simulation. It keeps nothing on disk."""

from __future__ import annotations

from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.embedded_cluster import (
    BrokerNode,
    EmbeddedCluster,
    in_memory_cluster,
    serve_cluster,
)
from kgroup.broker.faults import InjectedFault
from kgroup.broker.log_reader import BatchRecords, LogReader
from kgroup.broker.records import NewRecord, StoredRecord
from kgroup.broker.server import EmbeddedBroker, in_memory, serve

__all__ = [
    "BatchRecords",
    "BrokerNode",
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
