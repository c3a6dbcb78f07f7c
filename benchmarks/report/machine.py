"""What a run was made on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

from kgroup.testing.java import KAFKA_VERSION

ROOT: Final = Path(__file__).resolve().parents[2]


def machine() -> dict[str, Any]:
    """The machine, the broker's version and the commit."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory, GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "Python": platform.python_version(),
        "broker": f"Apache Kafka {KAFKA_VERSION}, one node on the same machine",
        "commit": _commit(),
    }


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607 # whichever git is there
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
