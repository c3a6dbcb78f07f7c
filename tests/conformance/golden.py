"""Golden files: transcripts recorded from Apache Kafka, and how an answer is held against them.

`scenarios_NAME.py` has its transcripts in `golden_NAME.json`. The format is the one of the
conformance material, so a file recorded by another copy of the driver can be put in the place of
one of these.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.conformance.driver import SCENARIOS

HERE: Final = Path(__file__).resolve().parent

BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "base": {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.max.session.timeout.ms": "1800000",
        "group.max.size": "4",
        "offset.metadata.max.bytes": "4096",
        "auto.create.topics.enable": "false",
    },
    "delay": {
        "group.initial.rebalance.delay.ms": "1000",
        "group.min.session.timeout.ms": "100",
        "group.max.session.timeout.ms": "1800000",
        "group.max.size": "4",
        "offset.metadata.max.bytes": "4096",
        "auto.create.topics.enable": "false",
    },
}
"""The settings that scenarios rely on, by configuration."""
KAFKA_ONLY: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""What a real Kafka needs besides to run as a single broker."""
TOPICS: Final = {"t1": 3, "t2": 2}
"""Topics that the player creates, with their numbers of partitions."""


def golden_path(suite: str) -> Path:
    """The golden file of a suite of this folder."""
    return HERE / f"golden_{suite}.json"


def read_golden(path: Path) -> dict[str, Any]:
    """A golden file's scenarios by name."""
    scenarios: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["scenarios"]
    return scenarios


def write_golden(path: Path, suite: str, source: str, played: Mapping[str, list[str]]) -> None:
    """Store transcripts, keeping those of the suite's scenarios that were not played now."""
    stored = read_golden(path) if path.exists() else {}
    for name, lines in played.items():
        scenario = SCENARIOS[name]
        stored[name] = {
            "area": scenario.area,
            "broker": scenario.broker,
            "what": scenario.doc,
            "transcript": lines,
        }
    golden = {
        "recorded_from": source,
        "brokers": BROKERS,
        "kafka_only": KAFKA_ONLY,
        "topics": TOPICS,
        "scenarios": {
            name: stored[name]
            for name, scenario in SCENARIOS.items()
            if name in stored and scenario.suite == suite
        },
    }
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def compare(expected: list[str] | None, lines: list[str]) -> list[str]:
    """The differences from the golden transcript, as lines of a unified diff."""
    if expected is None:
        return ["no golden transcript"]
    return list(difflib.unified_diff(expected, lines, "golden", "this broker", lineterm="", n=99))
