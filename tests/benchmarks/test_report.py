"""Results become tables, pictures and a page; what failed or is missing is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.clients.roster import Present
from benchmarks.report import page
from benchmarks.report.markdown import percentile, spread, table
from benchmarks.report.results import Results
from benchmarks.report.svg import Bar, Curve, Lanes, Spans, bars, curves, growth, lanes, spans

PLAY = {
    "client": "kgroup",
    "scene": "rolling restart",
    "heartbeat": 1.0,
    "round": 0,
    "seconds": 20.0,
    "events": [[0.0, "a worker restarts"]],
    "longest": [0.05, 0.25],
    "gaps": [[3, 0.5, 0.75]],
    "lost": 0,
    "twice": 4,
    "back": 0,
    "unread": 0,
}
FAILED = {"client": "aiokafka", "scene": "rolling restart", "heartbeat": 1.0, "failed": "no | luck"}


def results() -> Results:
    """A part with a client that was measured, one that failed and one that is missing."""
    return Results(
        part="handover",
        began="2026-01-01T00:00+00:00",
        machine={"cores": 2},
        settings={"session": 6.0, "partitions": 12},
        versions={"kgroup": "kgroup 1", "aiokafka": "aiokafka 2"},
        left_out={"kafka-go": "there is no Go"},
        rows=[PLAY, FAILED],
        load=[0.1, 0.2],
    )


def test_results_are_kept(tmp_path: Path) -> None:
    """What was written is read again."""
    results().write(tmp_path / "x.json")
    assert Results.read(tmp_path / "x.json") == results()


def test_results_that_cannot_be_written_are_those_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk gets full while a row is added, the rows before it are not lost."""
    results().write(tmp_path / "x.json")

    def write_half(path: Path, text: str, **_: object) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="no space"):
        results().write(tmp_path / "x.json")
    assert Results.read(tmp_path / "x.json") == results()


def test_the_page_names_what_is_missing_and_what_failed(tmp_path: Path) -> None:
    """A client that failed has no figures; a missing one and the failed one have their reasons."""
    (tmp_path / "benchmark-results").mkdir()
    results().write(tmp_path / "benchmark-results" / "handover.json")
    files = page.files_of(tmp_path)
    text = files[tmp_path / "benchmarks.md"]
    assert "**left out** kafka-go: there is no Go" in text
    assert "**failed** aiokafka, rolling restart: `no / luck`" in text
    assert "| kgroup | 1 s | 0.15 | 0.24 | 0.25 | 0 | 4 | 0 | 0 |" in text
    assert "| aiokafka | 1 s | **failed** | - | - | - | - | - | - |" in text
    assert "](benchmark-results/rolling-restart-1s.svg)" in text
    ET.fromstring(files[tmp_path / "benchmark-results" / "rolling-restart-1s.svg"])  # noqa: S314 # ours


@pytest.mark.parametrize("part", ["records", "security"])
def test_an_interrupted_run_is_shown_as_one(tmp_path: Path, part: str) -> None:
    """Its figures stay, and ratios are those of the rounds that both have."""
    (tmp_path / "benchmark-results").mkdir()
    rows = [
        {"client": client, "case": case, "round": number, "rate": rate * 1e6, "cpu": 100.0}
        for number, client, case, rate in (
            (0, "confluent-raw", "records, plain text", 2),
            (0, "kgroup", "records, plain text", 4),
            (0, "confluent-raw", "records, SASL_SSL", 1),
            (0, "kgroup", "records, SASL_SSL", 1),
            (1, "confluent-raw", "records, plain text", 3),
            (1, "kgroup", "records, plain text", 3),
            (1, "confluent-raw", "records, SASL_SSL", 3),
        )
    ]
    found = results()
    found.complete, found.rows = False, rows
    found.versions = dict.fromkeys(("confluent-raw", "kgroup", "java"), "1")
    found.write(tmp_path / "benchmark-results" / f"{part}.json")
    text = page.files_of(tmp_path)[tmp_path / "benchmarks.md"]
    assert "**Interrupted**: this run did not end" in text
    shown = {
        "records": "| kgroup | 1.00 | 1.00 | 100 | 1.00 |\n| java | - | - | - | - |",
        "security": "| kgroup | 3.50 (3.00 to 4.00) | 1.00 | 0.25 | 100 (100 to 100) | 100 |",
    }
    assert shown[part] in text


def test_a_part_that_has_ended_says_so(tmp_path: Path) -> None:
    """Its results are kept even if every client is left out, so that no older ones are shown."""
    there = Present((), {}, {"java": "no Java"})
    made = Results.begin("idle", {}, there, tmp_path)
    assert not made.complete
    made.finish()
    assert Results.read(tmp_path / "idle.json") == made
    assert made.complete


def test_a_note_stands_beside_the_figures(tmp_path: Path) -> None:
    """What was found out about a figure after the run is on the page."""
    (tmp_path / "benchmark-results").mkdir()
    found = results()
    found.notes = {"kgroup": "its clock was wrong"}
    found.write(tmp_path / "benchmark-results" / "handover.json")
    text = page.files_of(tmp_path)[tmp_path / "benchmarks.md"]
    assert "- **note** kgroup: its clock was wrong\n" in text


def test_a_page_without_results_says_so(tmp_path: Path) -> None:
    """A folder without results gives a page that claims nothing."""
    (text,) = page.files_of(tmp_path).values()
    assert "No results are kept here yet." in text


def test_old_pictures_are_removed(tmp_path: Path) -> None:
    """A picture that no result makes any more does not stay beside those that are shown."""
    (tmp_path / "benchmark-results").mkdir()
    (tmp_path / "benchmark-results" / "old.svg").touch()
    assert page.write(tmp_path) == [tmp_path / "benchmarks.md"]
    assert list((tmp_path / "benchmark-results").iterdir()) == []


def test_the_page_in_docs_is_that_of_its_results() -> None:
    """docs/benchmarks.md and its pictures are what ``python -m benchmarks page`` makes."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    files = page.files_of(docs)
    assert {path: path.read_text(encoding="utf-8") for path in files} == files


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([3.0], 95, 3.0), ([2.0, 1.0], 50, 1.5), ([0.0, 10.0], 95, 9.5)],
)
def test_percentiles_are_interpolated(values: list[float], percent: int, found: float) -> None:
    """A percentile lies between its neighbours."""
    assert percentile(values, percent) == pytest.approx(found)


def test_no_values_have_no_percentile() -> None:
    """Nothing measured is an error and not zero."""
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 95)


def test_a_spread_has_the_lowest_and_the_highest() -> None:
    """One value stands alone."""
    assert spread([1.0], ".1f") == "1.0"
    assert spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 to 3.0)"
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"


def test_lanes_draw_each_gap_in_its_lane() -> None:
    """A gap is as long as its time, and a failed client says why it has no lanes."""
    good = Lanes(name="a", seconds=10.0, partitions=2, gaps=[(1, 5.0, 10.0)], events=[(0.0, "x")])
    picture = lanes("t", "l", [good, Lanes(name="b", failed="<gone>")])
    ET.fromstring(picture)  # noqa: S314 # ours
    assert 'x="490.0" y="57.0" width="300.0"' in picture
    assert "failed: &lt;gone&gt;" in picture


def test_bars_and_curves_are_pictures() -> None:
    """A failed value has words and no bar; curves have a point for each value."""
    shown = bars("t", "s", [Bar(name="a", value=1.0, low=0.5, high=2.0, text="1"), FAILED_BAR])
    ET.fromstring(shown)  # noqa: S314 # ours
    assert shown.count("<rect") == 2
    assert "failed: no" in shown
    drawn = curves("t", "MiB", [Curve(name="a", points=[(0.0, 1.0), (1.0, 2.0)], ours=True)])
    assert len(ET.fromstring(drawn).findall(".//{*}polyline")) == 1  # noqa: S314 # ours


FAILED_BAR = Bar(name="b", value=None, text="no")


ROWS: dict[str, list[dict[str, Any]]] = {
    "records": [
        {"client": "confluent-raw", "case": "100 B", "round": 0, "rate": 2e6, "cpu": 100.0},
        {"client": "confluent-raw", "case": "100 B", "round": 1, "rate": 4e6, "cpu": 100.0},
        {"client": "kgroup", "case": "100 B", "round": 0, "rate": 1e6, "cpu": 150.0},
        {"client": "kgroup", "case": "100 B", "round": 1, "rate": 1e6, "cpu": 150.0},
        {"client": "java", "case": "100 B", "round": 0, "failed": "no heap"},
    ],
    "latency": [{"client": "kgroup", "case": "", "round": 0, "median": 1, "p99": 2, "longest": 3}],
    "memory": [
        {
            "client": "kgroup",
            "case": "",
            "round": 0,
            "records": 9,
            "peak": 7.0,
            "curve": [[0.0, 5.0], [1.0, 7.0]],
        }
    ],
    "idle": [
        {
            "client": "kgroup",
            "case": "",
            "round": 0,
            "cpu": 1.0,
            "rss": 40,
            "threads": 60,
            "descriptors": 70,
            "joined": 2.0,
        }
    ],
    "start": [
        {"client": "kgroup", "case": "", "round": 0}
        | {"start": [5.0, 7.0], "stop": [1.0, 900.0], "join": [3.0]},
        {"client": "java", "case": "", "round": 0, "start": [9.0], "stop": [2.0], "join": []},
    ],
    "security": [
        *(
            {"client": "kgroup", "case": f"records, {case}", "round": 0, "rate": rate, "cpu": 100.0}
            for case, rate in (("plain text", 2e6), ("SASL_SSL", 1e6))
        ),
        {"client": "kgroup", "case": "rolling restart, plain text", "longest": [0.0, 1.0]},
        {"client": "kgroup", "case": "rolling restart, SASL_SSL", "longest": [0.5, 0.5]},
        {"client": "java", "case": "records, plain text", "round": 0, "failed": "no heap"},
    ],
}
SHOWN = {
    "records": [
        "| kgroup | 1.00 (1.00 to 1.00) | 0.38 (0.25 to 0.50) | 150 (150 to 150) |",
        "| java | **failed** | - | **failed** | - |",
        "**failed** java, 100 B: `no heap`",
    ],
    "latency": ["| kgroup | 1.00 | 2.0 | 3.0 |"],
    "memory": ["| kgroup | 7 | 9 |"],
    "idle": ["| kgroup | 1.00 | 40 | 60 | 70 | 2.00 |"],
    "start": ["| kgroup | 3.0 | 6 (5 to 7) | 450 (1 to 900) |", "| java | - | 9 | 2 |"],
    "security": [
        "| kgroup | 2.00 | 1.00 | 0.50 | 100 | 100 | 1.00 |",
        "| kgroup | 0.95 | 1.00 | 0.50 | 0.50 |",
        "| java | **failed** | - | - | **failed** | - | - |",
    ],
}


@pytest.mark.parametrize("part", ROWS)
def test_each_part_has_a_table_and_pictures(tmp_path: Path, part: str) -> None:
    """A part's figures are in its table; its pictures exist, and the page links them."""
    (tmp_path / "benchmark-results").mkdir()
    rows = ROWS[part]
    clients = dict.fromkeys(str(row["client"]) for row in rows)
    found = Results(
        part=part,
        began="2026-01-01T00:00+00:00",
        machine={},
        settings={"members": 50, "partitions": 12, "rate": 1000},
        versions=dict.fromkeys(clients, "1"),
        left_out={},
        rows=rows,
    )
    found.write(tmp_path / "benchmark-results" / f"{part}.json")
    files = page.files_of(tmp_path)
    text = files.pop(tmp_path / "benchmarks.md")
    for line in SHOWN[part]:
        assert line in text
    for path, picture in files.items():
        ET.fromstring(picture)  # noqa: S314 # ours
        assert f"]({path.relative_to(tmp_path).as_posix()})" in text
    assert files


def test_growth_has_both_scales_in_powers_of_ten() -> None:
    """A value that is ten times another lies one step higher, and zeros are left out."""
    found = [Curve(name="a", points=[(10, 1.0), (100, 10.0), (1000, 0.0)])]
    picture = growth("t", "u", "members", found)
    ET.fromstring(picture)  # noqa: S314 # ours
    assert 'points="80.0,312.0 395.0,52.0"' in picture
    assert "1,000 members" in picture
    ET.fromstring(growth("t", "u", "members", []))  # noqa: S314 # ours


def test_spans_are_as_long_as_their_times() -> None:
    """A span that is too short has no words; what a member received stands above its lane."""
    lane = Spans(name="m1", spans=[(-1.0, 0.5, "0-3"), (0.5, 0.501, "4")], marks=[(0.0, True)])
    picture = spans("t", "l", -1.0, 1.0, [lane])
    ET.fromstring(picture)  # noqa: S314 # ours
    assert 'x="80.0" y="60.0" width="592.5"' in picture
    assert ">0-3<" in picture
    assert ">4<" not in picture
