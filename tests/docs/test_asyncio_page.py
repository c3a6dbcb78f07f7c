"""The web service of docs/asyncio.md: it consumes within the application's lifespan."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import pytest

from kgroup.interfaces import Message
from tests.brokers import EMBEDDED, Kafka
from tests.conftest import ROOT
from tests.threaded.harness import SOON, Harness

PAGE: Final = (ROOT / "docs" / "asyncio.md").read_text(encoding="utf-8")

SERVICE: Final = re.compile(
    r"^```python\n(import asyncio\nimport logging\nfrom contextlib.+?)^```$",
    re.MULTILINE | re.DOTALL,
)
LOGGED: Final = "the consumer has ended"


def service(here: Harness, process: Any) -> dict[str, Any]:
    """The names of the page's module, for a broker and a topic."""
    (example,) = SERVICE.findall(PAGE)
    named = example.replace("localhost:9092", here.bootstrap_servers)
    names: dict[str, Any] = {"process": process}
    exec(named.replace('"orders"', f'"{here.topic}"'), names)  # noqa: S102 # it is our own page
    return names


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
@pytest.mark.parametrize("fails", [False, True])
def test_it_begins_and_ends_with_the_application(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """What was processed is committed at the end; a handler's exception is in log and health."""
    here = Harness(kafka)
    here.group_id = here.topic
    here.create(1, 20)
    processed: list[int | None] = []
    enough = asyncio.Event()

    async def process(message: Message) -> None:
        processed.append(message.offset())
        await asyncio.sleep(0)
        if len(processed) == (1 if fails else 20):
            enough.set()
        if fails:
            raise ZeroDivisionError

    async def main() -> None:
        names = service(here, process)
        app = names["app"]
        async with asyncio.timeout(SOON):
            async with app.router.lifespan_context(app):
                await enough.wait()
                response = names["Response"]()
                # In the log, too, before the server stops, which may be days later.
                while fails and (response.status_code != 503 or LOGGED not in caplog.text):
                    await asyncio.sleep(0.01)
                    await names["health"](response)
                assert (await names["health"](response))["live"] is not fails
                assert response.status_code == (503 if fails else 200)
                assert ("ZeroDivisionError" in caplog.text) is fails

    if fails:
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(main())
        assert caught.group_contains(ZeroDivisionError)
    else:
        asyncio.run(main())
    assert here.committed() == (None if fails else 20)
