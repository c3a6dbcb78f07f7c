"""The engine of a session, without one: what it gives to the readers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from kgroup.spark import api, batches, session
from kgroup.spark.reader_settings import ReaderSettings
from tests.group.harness import harness


async def test_readers_get_the_brokers_that_the_driver_knows_by_now(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers may have other addresses by then than those with which the group started."""
    given: list[ReaderSettings] = []

    def frame(_spark: object, _ranges: object, settings: ReaderSettings, **_others: Any) -> object:
        given.append(settings)
        return object()

    known: dict[object, frozenset[str]] = {}
    monkeypatch.setattr(session, "frame", frame)
    monkeypatch.setattr(api, "subscription_of", lambda of: ((), known[of]))
    async with harness() as here, here.group() as group:
        generation = await group.next()
        first = generation.config.bootstrap_servers
        spark: Any = SimpleNamespace()
        jobs: Any = SimpleNamespace(running_tasks=len)
        loop = batches(generation, spark, jobs=jobs, max_records=1)
        # A broker may send any text as an address.
        for named in ((), ("[::1]:5", "b:1", "a,b:2"), ("[::1]:5", "b:1"), ("c:1",)):
            await here.append(1)
            known[generation] = frozenset((*first, *named))
            await (await anext(loop)).commit()
    servers = [settings.bootstrap_servers for settings in given]
    both = (*first, "[::1]:5", "b:1")
    assert servers == [first, both, both, (*first, "c:1")]
    assert given[1] is given[2]
