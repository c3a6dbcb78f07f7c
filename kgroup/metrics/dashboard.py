"""A dashboard for Grafana, over the metrics of ``kgroup.metrics.prometheus``.

``python -m kgroup.metrics.dashboard > dashboard.json`` writes it, for Grafana's import or for its
provisioning. It asks for the data source, and has variables for groups and topics.
"""

from __future__ import annotations

import sys
from importlib.resources import files


def dashboard() -> str:
    """The dashboard as JSON."""
    return files("kgroup.metrics").joinpath("grafana.json").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.stdout.write(dashboard())
