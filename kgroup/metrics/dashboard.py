"""A dashboard for Grafana, over the metrics of ``kgroup.metrics.prometheus``.

``python -m kgroup.metrics.dashboard > dashboard.json`` writes it, for Grafana's import or for its
provisioning. It asks for the data source, and has variables for groups and topics.
"""

from __future__ import annotations

import io
import sys
from importlib.resources import files


def dashboard() -> str:
    """The dashboard as JSON."""
    return files("kgroup.metrics").joinpath("grafana.json").read_text(encoding="utf-8")


def _main() -> None:
    try:
        print(dashboard(), end="", flush=True)  # noqa: T201 # its output
    except OSError as error:
        sys.stdout = io.StringIO()  # what is still buffered would fail again at the end
        sys.exit(f"Error: the dashboard cannot be written: {error.strerror}")


if __name__ == "__main__":
    _main()
