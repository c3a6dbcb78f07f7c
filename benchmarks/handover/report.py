"""Shows the results of hand-overs: a table and a picture for each scene."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.report.markdown import percentile, spread, table
from benchmarks.report.results import Results
from benchmarks.report.svg import Bar, Lanes, bars, lanes

FAULTS: Final = ("lost", "twice", "back", "unread")
ABOUT: Final[Mapping[str, str]] = {
    "scale-out": "From one worker to three.",
    "nothing": "No event at all: what the measurement itself adds.",
    "rolling restart": "Each of three workers is stopped by SIGTERM and started again.",
    "added partitions": (
        "Six partitions are added to the topic and written to at once; every client looks for new"
        " partitions once a second. Where records are *unread*, it had not found them at the end."
    ),
    "kill -9": (
        "One of three workers is killed. The group notices at the end of the session; *beyond* is"
        " the longest gap less the session timeout. Batches in hand are processed again."
    ),
    "scale-in": "From three workers to one.",
    "frozen": (
        "One of three workers, each with a backlog and 100 ms of work a batch, is stopped by"
        " SIGSTOP for 4 s longer than its session. *After waking* are the records that it processed"
        " after it woke, although another member processed them too."
    ),
    "restart, 200 ms a batch": (
        "One of three workers restarts; each batch takes 200 ms, so gaps of 0.2 to 0.4 s are due to"
        " the work."
    ),
    "restart, 5 s a batch": (
        "One of three workers restarts; each batch takes 5 s, so gaps of 5 to 10 s are due to the"
        " work."
    ),
}
LEGEND: Final = (
    "A lane is a partition. Red: for 0.1 s or more, it had records to read and none was processed."
    " Dashed: an event."
)
INTRODUCTION: Final = """\
A *gap* is a time in which a partition had a record to read and none of it was processed. For each
event, the longest gap of each partition counts; the table has their median, their 95th percentile
and the longest. *Lost* are records that were passed over and never processed; *twice*, records
that were processed again; *back*, offsets that a worker processed not above its last one;
*unread*, records that had still not been read when no member read any more. What goes wrong between
two scenes counts for the one before.

Records are produced at a steady rate, in a burst every 10 ms, to all partitions in turn. Each
worker is a process. It takes batches of up to 100 records, works for 10 ms on each batch, and
commits after each batch; kgroup's does so for each of its partitions at the same time. All clients
have the same session timeout and the same heartbeat interval; with KIP-848, the broker has them.

The groups that are called *mixed* have members of several clients: kgroup or not, confluent-kafka,
and Kafka's consumer in Java or kafka-go. The last two cannot share a group: Java's consumer as its
leader fails to read kafka-go's subscriptions.
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page; ``pictures`` is the folder of the pictures."""
    return "\n".join([INTRODUCTION, *_sections(results, pictures)])


def _sections(results: Results, pictures: str) -> Iterator[str]:
    for scene in _in_order(results.rows, "scene"):
        yield f"### {scene.capitalize()}\n\n{ABOUT[scene]}\n"
        heartbeats = _in_order(_of(results.rows, scene=scene), "heartbeat")
        for heartbeat in heartbeats:
            yield f"![{scene}]({pictures}/{_file(scene, heartbeat)})\n"
            yield f"![{scene}, p95]({pictures}/{_file(f'{scene} p95', heartbeat)})\n"
        yield _table(results, scene, heartbeats)


def _table(results: Results, scene: str, heartbeats: Sequence[float]) -> str:
    heads = ["client", "heartbeat", "median, s", "p95, s", "longest, s"]
    heads += {"kill -9": ["beyond, s"], "frozen": ["after waking"]}.get(scene, [])
    rows = []
    for heartbeat in heartbeats:
        for client in results.versions:
            plays = _of(results.rows, scene=scene, heartbeat=heartbeat, client=client)
            if plays:
                rows.append([client, f"{heartbeat:g} s", *_cells(results, scene, plays)])
    return table([*heads, *FAULTS], rows)


def _cells(results: Results, scene: str, plays: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = 3 + (scene in ("kill -9", "frozen")) + len(FAULTS)
    failed = [play["failed"] for play in plays if "failed" in play]
    good = [play for play in plays if "failed" not in play]
    if failed:
        return ["**failed**", *["-"] * (columns - 1)]
    most = max(max(play["longest"]) for play in good)
    cells = [
        spread([percentile(play["longest"], 50) for play in good], ".2f"),
        spread([percentile(play["longest"], 95) for play in good], ".2f"),
        f"{most:.2f}",
    ]
    if scene == "kill -9":
        cells.append(f"{most - results.settings['session']:.2f}")
    if scene == "frozen":
        cells.append(spread([play.get("late", 0) for play in good], ".0f"))
    return [*cells, *(str(sum(play[fault] for play in good)) for fault in FAULTS)]


def pictures(results: Results) -> dict[str, str]:
    """Gaps of the first round and bars of all, for each scene and interval: names and SVG."""
    found = {}
    for scene in _in_order(results.rows, "scene"):
        for heartbeat in _in_order(_of(results.rows, scene=scene), "heartbeat"):
            found[_file(scene, heartbeat)] = _picture(results, scene, heartbeat)
            found[_file(f"{scene} p95", heartbeat)] = _bars(results, scene, heartbeat)
    return found


def _picture(results: Results, scene: str, heartbeat: float) -> str:
    panels = list[Lanes]()
    for client in results.versions:
        plays = _of(results.rows, scene=scene, heartbeat=heartbeat, client=client)
        if not plays:
            continue
        play = plays[0]
        if "failed" in play:
            panels.append(Lanes(name=client, failed=play["failed"]))
            continue
        partitions = results.settings["partitions"]
        panels.append(
            Lanes(
                name=client,
                seconds=play["seconds"],
                note=f"longest {max(play['longest'], default=0.0):.2f} s",
                partitions=max([partitions, *(gap[0] + 1 for gap in play["gaps"])]),
                gaps=[(partition, began, ended) for partition, began, ended in play["gaps"]],
                events=[(at, what) for at, what in play["events"]],
            )
        )
    title = f"{scene.capitalize()}, a heartbeat every {heartbeat:g} s"
    return lanes(title, LEGEND, panels)


def _bars(results: Results, scene: str, heartbeat: float) -> str:
    found = []
    for client in results.versions:
        plays = _of(results.rows, scene=scene, heartbeat=heartbeat, client=client)
        failed = [play["failed"] for play in plays if "failed" in play]
        if failed:
            found.append(Bar(name=client, value=None, text=failed[0]))
        elif plays:
            each = [percentile(play["longest"], 95) for play in plays]
            median = statistics.median(each)
            found.append(
                Bar(
                    name=client,
                    value=median,
                    low=min(each),
                    high=max(each),
                    text=f"{median:.2f}",
                    ours=client == "kgroup",
                )
            )
    title = f"{scene.capitalize()}, a heartbeat every {heartbeat:g} s: p95 of the gap"
    return bars(title, "seconds; shorter is better", found)


def _file(scene: str, heartbeat: float) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in scene).split()
    return f"{'-'.join(words)}-{heartbeat:g}s.svg"


def _in_order(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _of(rows: Sequence[Mapping[str, Any]], **values: object) -> list[Mapping[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]
