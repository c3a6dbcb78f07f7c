"""A program with a threaded group, for tests that signal it or see how it exits.

Its first argument names what it does; the others say where. It prints what happens on standard
output, one word a line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

import kgroup
from kgroup import aio
from kgroup.config import GroupConfig
from kgroup.events import Event, GenerationDraining, Left, RequestFailed
from kgroup.interfaces import Batch
from kgroup.threaded import ConsumerGroup, Generation, run
from kgroup.wire import logins
from tests.aio.secured import PASSWORD, USER, secured
from tests.threaded.harness import QUICK, SOON

LOSES: Final = {
    # The session ends in the drain, and not before it, if the machine pauses for some seconds.
    "session_timeout": 15.0,
    "drain_timeout": 40.0,
    "close_timeout": 0.5,
    "request_timeout": 1.0,
}
OWN: Final[dict[str, dict[str, float]]] = {
    "still_running": {"drain_timeout": 1.0},
    "cut on trio": {"drain_timeout": 1.0},
    "cut in threads": {"drain_timeout": 1.0},
    "cut on asyncio": {"drain_timeout": 1.0},
    "hang beside asyncio": {"drain_timeout": 1.0},
    "cut by a loss on trio": LOSES,
    "cut by a loss in threads": LOSES,
    "cut by a loss on asyncio": LOSES,
    "lost": {"session_timeout": 5.0, "drain_timeout": 20.0, "close_timeout": 0.5},
}
"""Settings of one program."""


def say(*words: object) -> None:
    """Write a line."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def print_event(event: Event) -> None:
    """Print the moments for which tests wait."""
    if isinstance(event, RequestFailed):
        say("failed")
    if isinstance(event, Left):
        say("left", event.notified)


def print_events_and_drain(event: Event) -> None:
    """Print the drain, too."""
    print_event(event)
    if isinstance(event, GenerationDraining):
        say("draining")


def drain(generation: Generation) -> None:
    """A handler that holds a batch until the end, and commits it then."""
    for batch in generation.records():
        say("holding")
        generation.ending.wait(SOON)
        generation.commit({batch.partition: batch.next_offset})
        say("committed")


def loop(group: ConsumerGroup) -> None:
    """Work in handler threads; wait in next()."""
    with group:
        for generation in group:
            generation.start(drain, generation)
    say("over")


def body(group: ConsumerGroup) -> None:
    """Work in the loop's body, and be interrupted there."""
    with group:
        for generation in group:
            for batch in generation.records():
                say("holding")
                generation.ending.wait(SOON)
                generation.commit({batch.partition: batch.next_offset})
                say("committed")
    say("over")


def close_on_sigterm(work: Callable[[ConsumerGroup], None], group: ConsumerGroup) -> None:
    """Close from a signal handler."""
    signal.signal(signal.SIGTERM, lambda *_: group.close("SIGTERM"))
    work(group)


def interrupt(group: ConsumerGroup) -> None:
    """Be interrupted in next(), and continue after the block."""
    try:
        loop(group)
    except KeyboardInterrupt:
        say("interrupted")


def elsewhere(group: ConsumerGroup) -> None:
    """Run the block in another thread; a signal handler in the main thread waits for its end."""

    def close(*_: object) -> None:
        group.close("SIGTERM")
        say("closed")

    signal.signal(signal.SIGTERM, close)
    other = threading.Thread(target=loop, args=(group,))
    other.start()
    other.join()


def exit_inside(group: ConsumerGroup) -> None:
    """End the program without leaving the block."""
    generation = next(group.__enter__())
    held = threading.Event()

    def handle() -> None:
        for batch in generation.records():
            held.set()
            generation.ending.wait(SOON)
            generation.commit({batch.partition: batch.next_offset})
            say("committed")

    generation.start(handle)
    held.wait(SOON)


def exit_inside_two(group: ConsumerGroup) -> None:
    """End the program inside two blocks; what the second one has in hand needs the first's end."""
    config = attrs.evolve(group.config, group_id=f"{group.config.group_id}-2")
    second = ConsumerGroup(config, on_event=print_event)
    ending, held = threading.Event(), threading.Barrier(3)

    def handle(generation: Generation) -> None:
        for batch in generation.records():
            held.wait(SOON)
            generation.ending.wait(SOON)
            if generation.group_id == config.group_id:
                ending.wait(SOON)
            ending.set()
            generation.commit({batch.partition: batch.next_offset})
            say("committed")

    for one in (group, second):
        generation = next(one.__enter__())
        generation.start(handle, generation)
    held.wait(SOON)


def still_running(group: ConsumerGroup) -> None:
    """Leave a thread behind that never ends."""
    with group:
        generation = next(group)
        generation.start(threading.Event().wait)
    say("over")


def lost(group: ConsumerGroup) -> None:
    """Close at SIGTERM, as the docs have it, with a handler that is stuck."""

    def be_stuck() -> None:
        say("stuck")
        threading.Event().wait()

    with group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            generation.start(be_stuck)
    say("over")


def fork(group: ConsumerGroup) -> None:
    """Use the group in a forked process, and exit there."""
    with group:
        generation = next(group)
        child = os.fork()
        if child == 0:
            try:
                generation.commit({})
            except Exception as error:  # noqa: BLE001 # printed for the test
                say(type(error).__name__)
            sys.exit(3)
        _, status = os.waitpid(child, 0)
        say("child exited", os.waitstatus_to_exitcode(status))


def run_on_trio(group: ConsumerGroup) -> None:
    """A worker by ``kgroup.run``, whose function never returns by itself."""

    async def handle(_: object, __: Batch) -> None:
        say("holding")
        await trio.sleep_forever()

    kgroup.run(group.config, handle, on_event=print_events_and_drain)


def run_in_threads(group: ConsumerGroup) -> None:
    """A worker by ``kgroup.threaded.run``, whose function never returns."""

    def handle(_: object, __: Batch) -> None:
        say("holding")
        threading.Event().wait()

    run(group.config, handle, threads=2, on_event=print_events_and_drain)


def signalled_in_a_handler(group: ConsumerGroup) -> None:
    """A worker whose handler thread receives the signal that closes it."""

    def handle(_: object, __: Batch) -> None:
        say("holding")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    run(group.config, handle, on_event=print_event)


def run_on_asyncio(group: ConsumerGroup) -> None:
    """A worker by ``kgroup.aio.run``, whose function never returns by itself."""

    async def handle(_: object, __: Batch) -> None:
        say("holding")
        await asyncio.sleep(SOON)

    aio.run(group.config, handle, on_event=print_events_and_drain)


def block_on_trio(group: ConsumerGroup) -> None:
    """A worker whose function blocks the event loop."""

    async def handle(_: object, __: Batch) -> None:
        await trio.lowlevel.checkpoint()
        say("holding")
        threading.Event().wait()

    kgroup.run(group.config, handle)


def block_on_asyncio(group: ConsumerGroup) -> None:
    """A worker whose function blocks the event loop."""

    async def handle(_: object, __: Batch) -> None:
        await asyncio.sleep(0)
        say("holding")
        threading.Event().wait()

    aio.run(group.config, handle)


def hang_beside_asyncio(group: ConsumerGroup) -> None:
    """A worker whose function waits for a thread that never ends."""

    class Loop(asyncio.SelectorEventLoop):
        async def shutdown_default_executor(self, *args: Any) -> None:
            say("waiting")
            await super().shutdown_default_executor(*args)

    async def handle(_: object, __: Batch) -> None:
        say("holding")
        await asyncio.to_thread(threading.Event().wait)

    aio.run(group.config, handle, on_event=print_event, loop_factory=Loop)


def exit_in_threads(group: ConsumerGroup) -> None:
    """A worker of which several threads want to end the process."""
    both = threading.Barrier(2)

    def handle(_: object, __: Batch) -> None:
        both.wait(SOON)
        sys.exit(7)

    run(group.config, handle, threads=2)


def fail_on_trio(group: ConsumerGroup) -> None:
    """A worker whose function raises."""

    async def handle(_: object, __: Batch) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("the record is wrong") from KeyError("its cause")

    kgroup.run(group.config, handle)


def fail_on_asyncio(group: ConsumerGroup) -> None:
    """A worker whose function raises."""

    async def handle(_: object, __: Batch) -> None:
        await asyncio.sleep(0)
        raise ValueError("the record is wrong") from KeyError("its cause")

    aio.run(group.config, handle)


def interrupt_asyncio(group: ConsumerGroup) -> None:
    """Be interrupted in ``asyncio.run``, which cancels the task that has the block."""

    async def hold() -> None:
        try:
            say("holding")
            await asyncio.sleep(SOON)
        finally:
            say("cancelled")

    async def main() -> None:
        async with aio.ConsumerGroup(group.config, on_event=print_event) as inside:
            async for generation in inside:
                generation.start_soon(hold)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        say("interrupted")


def exit_inside_asyncio(group: ConsumerGroup) -> None:
    """End the program when asyncio's loop has stopped, without leaving the block."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    inside = aio.ConsumerGroup(group.config)
    loop = asyncio.new_event_loop()

    async def hold() -> None:
        say("holding")
        await asyncio.sleep(SOON)

    async def enter() -> None:
        generation = await (await inside.__aenter__()).next()
        generation.start_soon(hold)
        await asyncio.sleep(0)

    loop.run_until_complete(enter())


def log_in_to_leave(group: ConsumerGroup) -> None:
    """End at SIGTERM without leaving the block, when asyncio's loop has stopped.

    The function for logins is async.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logins.PATIENCE = SOON  # type: ignore[misc] # nothing but the exit ends a look-up
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())

    async def credentials() -> kgroup.Credentials:
        await asyncio.sleep(0)
        return kgroup.Credentials(USER, PASSWORD)

    inside = aio.ConsumerGroup(attrs.evolve(group.config, security=secured(credentials)))

    async def enter() -> None:
        await (await inside.__aenter__()).next()

    asyncio.new_event_loop().run_until_complete(enter())
    say("stopped")
    ends.wait(SOON)


def fail_in_threads(group: ConsumerGroup) -> None:
    """A worker whose function raises."""

    def handle(_: object, __: Batch) -> None:
        raise ValueError("the record is wrong") from KeyError("its cause")

    run(group.config, handle)


PROGRAMS: Final[dict[str, Callable[[ConsumerGroup], None]]] = {
    "loop": lambda group: close_on_sigterm(loop, group),
    "body": lambda group: close_on_sigterm(body, group),
    "interrupt": interrupt,
    "elsewhere": elsewhere,
    "exit inside": exit_inside,
    "exit inside two": exit_inside_two,
    "still_running": still_running,
    "lost": lost,
    "fork": fork,
    "run on trio": run_on_trio,
    "run in threads": run_in_threads,
    "run on asyncio": run_on_asyncio,
    "signalled in a handler": signalled_in_a_handler,
    "cut on trio": run_on_trio,
    "cut in threads": run_in_threads,
    "cut on asyncio": run_on_asyncio,
    "cut by a loss on trio": run_on_trio,
    "cut by a loss in threads": run_in_threads,
    "cut by a loss on asyncio": run_on_asyncio,
    "block on trio": block_on_trio,
    "block on asyncio": block_on_asyncio,
    "hang beside asyncio": hang_beside_asyncio,
    "exit in threads": exit_in_threads,
    "fail on asyncio": fail_on_asyncio,
    "interrupt asyncio": interrupt_asyncio,
    "exit inside asyncio": exit_inside_asyncio,
    "log in to leave": log_in_to_leave,
    "fail on trio": fail_on_trio,
    "fail in threads": fail_in_threads,
}


def main() -> None:
    """Run one of the programs."""
    name, servers, topic, group_id = sys.argv[1:]
    settings = {**QUICK, **OWN.get(name, {})}
    config = GroupConfig(bootstrap_servers=servers, group_id=group_id, topics=[topic], **settings)
    PROGRAMS[name](
        ConsumerGroup(config, on_event=print_events_and_drain if name == "lost" else print_event)
    )


if __name__ == "__main__":
    main()
