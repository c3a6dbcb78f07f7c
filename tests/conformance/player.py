"""Plays scenarios against one broker and gives their transcripts.

Each scenario is a few requests to a group of its own, and yields a transcript: one line per
request and answer, without anything that differs from run to run. Scenarios need a single-broker
cluster in one of the configurations in `BROKERS`, used for nothing else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

import trio

from tests.conformance.calls import ScenarioError, ScenarioRun
from tests.conformance.driver import Group, Scenario
from tests.conformance.golden import TOPICS
from tests.conformance.transcript import show_error
from tests.conformance.wire import Opener, Pool

SLACK: Final = 0.6
"""Seconds by which a timer may be late on a busy machine."""
JOBS: Final = 8
"""Scenarios played at a time, if nothing else is wanted."""
_DEADLINE: Final = 60.0
_WARM_UP: Final = 30.0
_PAUSE: Final = 0.2
_GROUP_COORDINATOR: Final = 0
_TRANSACTION_COORDINATOR: Final = 1


def tcp(bootstrap: str) -> Opener:
    """Connects by a socket to `host:port`."""
    host, _, port = bootstrap.rpartition(":")

    async def open_stream() -> trio.abc.Stream:
        return await trio.open_tcp_stream(host, int(port))

    return open_stream


async def warm_up(open_stream: Opener) -> None:
    """Create the topics and wait until both coordinators answer.

    Raises:
        NoAnswerError: no broker answers.
        trio.TooSlowError: the coordinators take too long.
    """
    pool = Pool(open_stream)
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name, partitions in TOPICS.items()
    ]
    with trio.fail_after(_WARM_UP):
        await pool.request("create_topics", 5, {"topics": topics}, "conformance")
        for key_type in (_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR):
            wanted = {"key": "conformance", "key_type": key_type}
            answer = await pool.request("find_coordinator", 3, wanted, "conformance")
            while show_error(answer) != "NONE":
                await trio.sleep(_PAUSE)
                answer = await pool.request("find_coordinator", 3, wanted, "conformance")
        question = {"groups": ["conformance"], "include_authorized_operations": False}
        answer = await pool.request("describe_groups", 5, question, "conformance")
        while show_error(answer["groups"][0]) != "NONE":
            await trio.sleep(_PAUSE)
            answer = await pool.request("describe_groups", 5, question, "conformance")
    await pool.aclose()


async def play(scenario: Scenario, open_stream: Opener, slack: float = SLACK) -> list[str]:
    """Play one scenario and return its transcript."""
    pool = Pool(open_stream)
    async with trio.open_nursery() as nursery:
        scenario_run = ScenarioRun(
            pool=pool,
            nursery=nursery,
            run_id=f"{scenario.name}-{uuid.uuid4().hex[:8]}",
            slack=slack,
        )
        failure = ""
        try:
            with trio.fail_after(_DEADLINE):
                await scenario.play(Group(scenario_run))
        except trio.TooSlowError:
            failure = f"!! not finished after {_DEADLINE:g} s"
        except ScenarioError as error:
            failure = f"!! cannot continue: {error}"
        except Exception as error:  # noqa: BLE001 # a broken broker must not stop other scenarios
            failure = f"!! cannot continue: {error!r}"
        nursery.cancel_scope.cancel()
    lines = [line(scenario_run.names) for line in scenario_run.lines]
    await scenario_run.clean_up()
    await pool.aclose()
    return [*lines, scenario_run.names.scrub(failure)] if failure else lines


async def play_all(
    scenarios: Iterable[Scenario],
    open_stream: Opener,
    report: Callable[[Scenario, list[str]], None],
    *,
    jobs: int = JOBS,
    slack: float = SLACK,
) -> None:
    """Play scenarios, some at a time, and report the transcript of each when it has ended."""
    limit = trio.CapacityLimiter(jobs)

    async def play_one(scenario: Scenario) -> None:
        async with limit:
            lines = await play(scenario, open_stream, slack)
        report(scenario, lines)

    async with trio.open_nursery() as nursery:
        for scenario in scenarios:
            nursery.start_soon(play_one, scenario)
