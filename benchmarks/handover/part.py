"""The command ``python -m benchmarks handover``: plays scenes with each client, in turns."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.arguments import count, seconds
from benchmarks.clients.job import Job
from benchmarks.clients.roster import CLIENTS, Client, Present, present
from benchmarks.handover import judge
from benchmarks.handover.scenes import PLANNED, SCENES
from benchmarks.handover.stage import Stage
from benchmarks.processes import reason
from benchmarks.report.progress import Progress
from benchmarks.report.results import Results
from kgroup.testing.kafka import RealKafka

DEFAULT: Final = (
    "kgroup",
    "confluent-eager",
    "confluent-cooperative",
    "confluent-kip848",
    "aiokafka",
    "kafka-go",
    "franz-go",
    "java",
    "java-kip848",
    "mixed, Java",
    "mixed, Java, no kgroup",
    "mixed, Go",
    "mixed, Go, no kgroup",
)
"""All but kafka-python, which is measured if it is named."""
REFRESH: Final = 1.0
"""Seconds after which all clients look for new partitions; kgroup's default."""
SHOWN: Final = 0.1
"""Gaps of at least so many seconds are kept, and drawn in the pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    able = [name for name, client in CLIENTS.items() if client.grouped]
    parser.add_argument("--rounds", type=count, default=1)
    parser.add_argument("--heartbeat", type=seconds, nargs="+", default=[1.0], metavar="SECONDS")
    parser.add_argument("--session", type=seconds, default=6.0, metavar="SECONDS")
    parser.add_argument("--clients", nargs="+", choices=able, default=list(DEFAULT))
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--partitions", type=count, default=12)
    parser.add_argument("--rate", type=count, default=3000, help="records per second")
    parser.add_argument(
        "--assignors", nargs="+", default=[], help="kgroup's; by default those of GroupConfig"
    )


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Play all scenes."""
    there = present(arguments.clients)
    options = ("rounds", "heartbeat", "session", "partitions", "rate", "scenes", "assignors")
    settings = {name: getattr(arguments, name) for name in options}
    results = Results.begin("handover", settings, there, folder)
    if not there.clients:
        return results
    progress = Progress(len(arguments.heartbeat) * arguments.rounds * len(there.clients))
    for round_number, heartbeat in itertools.product(range(arguments.rounds), arguments.heartbeat):
        with RealKafka(broker_settings(arguments.session, heartbeat)) as kafka:
            job = Job(
                servers=kafka.bootstrap_servers,
                topic="",
                group="",
                partitions=arguments.partitions,
                session=arguments.session,
                heartbeat=heartbeat,
                refresh=REFRESH,
                assignors=",".join(arguments.assignors),
            )
            warm_up(there, job, arguments.rate)
            for client in there.clients:
                progress.step(f"{client.name}, heartbeat {heartbeat:g} s")
                for play in plays_of(there, client, job, arguments):
                    results.add({"round": round_number, **play})
                    progress.say(line_of(play))
    return results


def warm_up(there: Present, job: Job, rate: int) -> None:
    """Play a scene without measuring it: the first client must not have a slower broker."""
    stage = Stage(there.workers(there.clients[0]), job, rate)
    for _ in play_together(stage, ["scale-out"]):
        pass


def broker_settings(session: float, heartbeat: float) -> dict[str, object]:
    """The new protocol's timeout and interval are the broker's (KIP-848)."""
    return {
        "group.consumer.session.timeout.ms": int(session * 1000),
        "group.consumer.min.session.timeout.ms": int(session * 1000),
        "group.consumer.heartbeat.interval.ms": int(heartbeat * 1000),
        "group.consumer.min.heartbeat.interval.ms": int(heartbeat * 1000),
    }


def plays_of(
    there: Present, client: Client, job: Job, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Play the scenes with one client, those of one setting on one stage.

    A mixed group plays only planned changes: the rest depends on the member that it happens to.
    """
    able = PLANNED if client.clients else SCENES
    wanted = [name for name in SCENES if name in arguments.scenes and name in able]
    for setting, names in itertools.groupby(wanted, lambda name: SCENES[name].setting):
        mine = attrs.evolve(job, work=setting.work, batch=setting.batch)
        rate = max(1, int(arguments.rate * setting.rate))
        left = list(names)
        while left:
            stage = Stage(there.workers(client), mine, rate)
            shared = {"client": client.name, "heartbeat": job.heartbeat}
            try:
                for play in play_together(stage, list(left)):
                    left.remove(play["scene"])
                    yield {**shared, **play}
            except Exception as error:  # noqa: BLE001 # it must not end the others' turns
                if left:
                    yield {**shared, "scene": left.pop(0), "failed": reason(error)}


def play_together(stage: Stage, scenes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Play scenes on one stage, until one fails."""
    failed = list[dict[str, Any]]()
    with stage.running():
        for name in scenes:
            try:
                stage.be(SCENES[name].workers)
                with stage.scene(name):
                    SCENES[name].act(stage)
            except Exception as error:  # noqa: BLE001 # it must not end the others' turns
                failed.append({"scene": name, "failed": reason(error)})
                break
        stage.finish()
        yield from judged(stage, [one["scene"] for one in failed])
        yield from failed


def judged(stage: Stage, failed: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the journals say of each scene that did not fail; times are relative to its first event.

    A fault between two scenes, while the group gets another size, is one of the scene before, and
    one before all scenes one of the first: none is left out.
    """
    journals, ends, marks = stage.journals(), stage.ends(), stage.marks
    everything = [one for journal in journals.values() for one in journal]
    begins = [mark.at for mark in marks]
    gaps = judge.gaps_of(everything, ends, begins[-1])
    longest = judge.longest(gaps, begins)
    faults = judge.faults_of(list(journals.values()), [-math.inf, *begins])
    names = [name for name in dict.fromkeys(mark.scene for mark in marks) if name is not None]
    owners = [*names[:1], *_carried(mark.scene for mark in marks)]
    for name in names:
        if name in failed:
            continue
        windows = [number for number, mark in enumerate(marks) if mark.scene == name]
        began, ended = begins[windows[0]], begins[windows[-1] + 1]
        if not any(longest[window] for window in windows):
            yield {"scene": name, "failed": "nothing was processed"}
            continue
        play: dict[str, Any] = {
            "scene": name,
            "seconds": round(ended - began, 3),
            "events": [[round(begins[one] - began, 3), marks[one].what] for one in windows],
            "longest": [round(one, 4) for window in windows for one in longest[window].values()],
            "gaps": [
                [gap.partition, round(gap.began - began, 3), round(gap.ended - began, 3)]
                for gap in sorted(gaps)
                if gap.seconds >= SHOWN and gap.ended > began and gap.began < ended
            ],
        }
        for fault in ("lost", "twice", "back"):
            play[fault] = sum(
                getattr(one, fault)
                for one, owner in zip(faults, owners, strict=True)
                if owner == name
            )
        play["unread"] = judge.unread(everything, ends) if name == names[-1] else 0
        for worker, woke in stage.woken:
            if began <= woke < ended:
                others = [one for other in journals if other != worker for one in journals[other]]
                play["late"] = judge.after_waking(journals[worker], others, woke)
        yield play


def _carried(scenes: Iterable[str | None]) -> Iterator[str | None]:
    """For each mark its scene, or the one before it."""
    last = None
    for scene in scenes:
        last = scene or last
        yield last


def line_of(play: Mapping[str, Any]) -> str:
    """A play, in one line of progress."""
    if "failed" in play:
        return f"{play['scene']}: FAILED: {play['failed']}"
    gap = f"longest gap {max(play['longest'], default=0.0):.3f} s"
    return f"{play['scene']}: {gap}, lost {play['lost']}, twice {play['twice']}"
