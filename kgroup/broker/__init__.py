"""An embedded Kafka broker for quick starts, tests and simulation. It keeps nothing on disk."""

from __future__ import annotations

from kgroup.broker.faults import Fault
from kgroup.broker.reader import LogReader, Records
from kgroup.broker.records import NewRecord, StoredRecord
from kgroup.broker.server import Broker, in_memory, serve
from kgroup.broker.settings import BrokerSettings
from kgroup.broker.several import (
    BrokerNode,
    EmbeddedCluster,
    in_memory_cluster,
    serve_cluster,
)

__all__ = [
    "Broker",
    "BrokerNode",
    "BrokerSettings",
    "EmbeddedCluster",
    "Fault",
    "LogReader",
    "NewRecord",
    "Records",
    "StoredRecord",
    "in_memory",
    "in_memory_cluster",
    "serve",
    "serve_cluster",
]
