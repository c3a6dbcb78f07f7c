"""Mistakes that type checkers must find. They are checked, and never run.

Each line with a mistake is ignored, by mypy's name of the rule that it breaks; pyright ignores it
too. If one of them does not find the mistake any more, it reports that there is nothing to ignore.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnusedImport=false, reportUnusedVariable=false
# ruff: noqa: F401, F841

from __future__ import annotations

import kgroup
from kgroup import Nope, aio, threaded  # type: ignore[attr-defined]


def handle_in_thread(generation: threaded.Generation, batch: kgroup.Batch) -> None:
    """A function for `kgroup.threaded.run`."""


async def process(generation: kgroup.Generation, partition: kgroup.TopicPartition) -> None:
    """A task."""


def work(generation: threaded.Generation, partition: kgroup.TopicPartition) -> None:
    """A thread."""


def a_name_that_is_not_there(config: kgroup.GroupConfig) -> None:
    """A misspelled class."""
    kgroup.ConsumerGruop(config)  # type: ignore[attr-defined]


def wrong_arguments_of_a_task(
    generation: kgroup.Generation, partition: kgroup.TopicPartition
) -> None:
    """Too few, a wrong one, and a coroutine instead of the function."""
    generation.start_soon(process, generation)  # type: ignore[arg-type]
    generation.start_soon(process, generation, "orders")  # type: ignore[arg-type]
    generation.start_soon(process(generation, partition))  # type: ignore[arg-type]


def wrong_arguments_of_a_thread(generation: threaded.Generation) -> None:
    """Too few, and in the wrong order."""
    generation.start(work, generation)  # type: ignore[arg-type]
    generation.start(work, "orders", generation)  # type: ignore[arg-type]


def methods_of_the_other_generation(
    generation: kgroup.Generation, of_threads: threaded.Generation
) -> None:
    """Tasks have start_soon, threads have start."""
    generation.start(work)  # type: ignore[attr-defined]
    of_threads.start_soon(work)  # type: ignore[attr-defined]


def functions_for_the_other_kind_of_worker(config: kgroup.GroupConfig) -> None:
    """A plain function on trio, an async one in threads, and an unknown option."""
    kgroup.run(config, handle_in_thread)  # type: ignore[arg-type]
    threaded.run(config, process)  # type: ignore[arg-type]
    threaded.run(config, handle_in_thread, thread=4)  # type: ignore[call-arg]


async def task_of_asyncio(generation: aio.Generation, partition: kgroup.TopicPartition) -> None:
    """A task of asyncio."""


def wrong_arguments_of_a_task_of_asyncio(
    config: kgroup.GroupConfig, generation: aio.Generation
) -> None:
    """Too few, a function of trio's generations, and a plain function."""
    generation.start_soon(task_of_asyncio, generation)  # type: ignore[arg-type]
    generation.start_soon(process, generation, "orders")  # type: ignore[arg-type]
    aio.run(config, handle_in_thread)  # type: ignore[arg-type]


async def wrong_values(generation: kgroup.Generation, message: kgroup.Message) -> None:
    """Headers that are no text, a topic instead of a partition, and an unknown setting."""
    headers: str = message.headers()  # type: ignore[assignment]
    await generation.commit({"orders": 1})  # type: ignore[dict-item]
    kgroup.GroupConfig(bootstrap_servers="a:1", group_id="g", topics=["t"], session_time_out=3)  # type: ignore[call-arg]


async def blocks_without_async(trio: kgroup.ConsumerGroup, asyncio: aio.ConsumerGroup) -> None:
    """Groups with an event loop have async blocks and loops only."""
    with trio as one, asyncio as other:  # type: ignore[attr-defined]
        pass
    for _ in trio:  # type: ignore[attr-defined]
        pass
    for _ in asyncio:  # type: ignore[attr-defined]
        pass


async def async_blocks_of_threads(group: threaded.ConsumerGroup) -> None:
    """A group of threads has plain ones only."""
    async with group as entered:  # type: ignore[attr-defined]
        pass
    async for _ in group:  # type: ignore[attr-defined]
        pass


def a_block_that_may_end_early(generation: threaded.Generation) -> int:  # type: ignore[return]
    """No result after a block that a stale generation ends; so for the other two groups below."""
    with generation.scope():
        return 1


def a_task_that_may_end_early(generation: kgroup.Generation) -> int:  # type: ignore[return]
    """On trio."""
    with generation.scope():
        return 1


def a_task_of_asyncio_that_may_end_early(generation: aio.Generation) -> int:  # type: ignore[return]
    """With asyncio."""
    with generation.scope():
        return 1
