"""Shows what encryption and logins cost: the same figures on both listeners, and their ratio."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import FAILED, Column, bars_of, ratio_of, values_of
from benchmarks.report.markdown import percentile, spread, table
from benchmarks.report.results import Results

PLAIN: Final = "plain text"
SECURE: Final = "SASL_SSL"
LISTENERS: Final = (PLAIN, SECURE)
SCENE: Final = "rolling restart"
RATE: Final = Column("rate", "M records/s", ".2f", 1e-6)
CPU: Final = Column("cpu", "CPU, ns a record", ".0f")
GAP: Final = Column("longest", "longest gap, s", ".2f")
ABOUT: Final = """\
The same backlog, and the same rolling restart of three workers, on Kafka's plain listener and on
one with TLS and SCRAM-SHA-512, in turns and on the same broker. *confluent-raw* is confluent-kafka
without a group. Ratios compare figures of the same round. The gaps are those of every partition at
every restart, as under hand-overs, with a heartbeat of 1 s.
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    shown = f"![records]({pictures}/security-records.svg)\n"
    return "\n".join(
        [
            ABOUT,
            "### Records\n",
            shown,
            _reading(results),
            "### Rolling restart\n",
            _restarting(results),
        ]
    )


def pictures(results: Results) -> dict[str, str]:
    """Bars of the rates over TLS."""
    title = "Records over TLS, after a login by SCRAM"
    unit = "millions a second; longer is better"
    return {"security-records.svg": bars_of(results, RATE, title, unit, f"records, {SECURE}")}


def _reading(results: Results) -> str:
    rows = []
    for client in _clients(results, "records"):
        cells = []
        cases = [f"records, {listener}" for listener in LISTENERS]
        for column in (RATE, CPU):
            plain, secure = (values_of(results, client, case, column) for case in cases)
            cells += [
                FAILED if one is None else spread(one, column.form) for one in (plain, secure)
            ]
            if plain is None or secure is None:
                cells.append("-")
            else:
                on_plain, on_secure = ((client, case) for case in cases)
                cells.append(ratio_of(results, column, on_secure, on_plain))
        rows.append([client, *cells])
    headings = [
        heading
        for column in (RATE, CPU)
        for heading in (f"{column.heading}, {PLAIN}", SECURE, "ratio")
    ]
    return table(["client", *headings], rows)


def _restarting(results: Results) -> str:
    rows = []
    for client in _clients(results, SCENE):
        cells = []
        for listener in (PLAIN, SECURE):
            gaps = values_of(results, client, f"{SCENE}, {listener}", GAP)
            if gaps is None:
                cells += [FAILED, "-"]
            elif not gaps:
                cells += ["-", "-"]
            else:
                cells += [f"{percentile(gaps, 95):.2f}", f"{max(gaps):.2f}"]
        rows.append([client, *cells])
    headings = [f"gap p95, s, {PLAIN}", "longest", f"gap p95, s, {SECURE}", "longest"]
    return table(["client", *headings], rows)


def _clients(results: Results, case: str) -> list[str]:
    mine = (row["client"] for row in results.rows if row["case"].startswith(f"{case}, "))
    return list(dict.fromkeys(mine))
