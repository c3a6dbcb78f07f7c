"""The results of one part: what was found, with which versions, on which machine, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, final

import attrs

from benchmarks.clients.roster import Present
from benchmarks.report.machine import load, machine


@final
@attrs.define(kw_only=True)
class Results:
    """The results of one part.

    Attributes:
        part: its name.
        began: date and time in UTC.
        machine: what it ran on.
        settings: its options.
        versions: for each client what was measured.
        left_out: for each client that could not be measured the reason.
        rows: the figures. A row has the client's name as "client", and "failed" with the reason
            instead of figures if the client failed.
        load: the load average before and after.
        complete: whether the part has ended, and was not interrupted.
        notes: for each client what has been found out about its figures since.
    """

    part: str
    began: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    left_out: dict[str, str]
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    load: list[float] = attrs.field(factory=list)
    complete: bool = True
    notes: dict[str, str] = attrs.field(factory=dict)
    path: Path | None = attrs.field(default=None, eq=False)

    @classmethod
    def begin(cls, part: str, settings: Mapping[str, Any], there: Present, folder: Path) -> Self:
        """Results without any figures yet, which are kept in a folder from now on."""
        return cls(
            path=folder / f"{part}.json",
            part=part,
            began=datetime.now(UTC).isoformat(timespec="minutes"),
            machine=machine(),
            settings=dict(settings),
            versions=dict(there.versions),
            left_out=dict(there.left_out),
            load=[load()],
            complete=False,
        )

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a row, also if the run is interrupted later."""
        self.rows.append(dict(row))
        self.load[1:] = [load()]
        if self.path is not None:
            self.write(self.path)

    def finish(self) -> None:
        """Keep that the part has ended, also if it has no row because every client is left out."""
        self.complete = True
        if self.path is not None:
            self.write(self.path)

    def failures(self) -> dict[str, str]:
        """What failed, and why."""
        names = ("client", "scene", "case")
        return {
            ", ".join(str(row[name]) for name in names if row.get(name)): row["failed"]
            for row in self.rows
            if "failed" in row
        }

    def write(self, path: Path) -> None:
        """Write them, one row a line, so that two runs can be compared.

        A run that is killed here, or finds the disk full, leaves the rows that it had before.
        """
        known = attrs.asdict(self, filter=attrs.filters.exclude("path"))
        rows = ",\n  ".join(json.dumps(row) for row in known.pop("rows"))
        head = json.dumps(known, indent=1).removesuffix("\n}")
        new = path.with_suffix(".new")
        new.write_text(f'{head},\n "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Those of an earlier run."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
