"""Kafka's own command-line tools, by the names of their scripts, against a running broker."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final

from kgroup.errors import UsageError
from kgroup.testing.java import TOOL_TIMEOUT, run_java

TOOLS: Final[Mapping[str, str]] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""For each script in Kafka's bin folder that takes ``--bootstrap-server``, its class."""


def run_tool(
    bootstrap_servers: str,
    tool: str,
    *args: str,
    stdin: str | None = None,
    timeout: float = TOOL_TIMEOUT,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end, with ``--bootstrap-server`` before its arguments.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        tool: a name in ``TOOLS``, such as ``kafka-consumer-groups``.
        args: its arguments.
        stdin: text for its standard input; none by default.
        timeout: seconds until it is killed.

    Raises:
        UsageError: there is no such tool.
        subprocess.CalledProcessError: it failed; a note has its output.
        subprocess.TimeoutExpired: it was killed.
        KafkaUnavailableError: there is no Java, or there are no jars.
    """
    if tool not in TOOLS:
        raise UsageError(f"there is no tool {tool!r}; the tools are {', '.join(TOOLS)}")
    server = ("--bootstrap-server", bootstrap_servers)
    return run_java(TOOLS[tool], *server, *args, stdin=stdin, timeout=timeout)
