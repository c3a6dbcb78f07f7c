"""Runs the example in README.md unchanged, except for the names of broker and topic."""

from __future__ import annotations

import re
import signal

from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

PROCESS = '''
async def process(message):
    """The function that README leaves to its reader."""
    print(message.topic(), message.partition(), message.offset())
    await trio.lowlevel.checkpoint()


'''


def program(reader: Reader, topic: Topic) -> str:
    """README's program, with `process`, for a broker and a topic."""
    text = (reader.folder / "README.md").read_text(encoding="utf-8")
    examples: list[str] = re.findall(r"^```python\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    example, _on_spark = examples  # tests/spark tests the other one
    assert example.count('"localhost:9092"') == 1
    assert example.count('"orders"') == 2
    named = example.replace("localhost:9092", topic.bootstrap_servers)
    return PROCESS + named.replace('"orders"', f'"{topic.name}"')


def test_the_example_of_readme_runs(reader: Reader, topic: Topic) -> None:
    """It processes every record once and commits; on Ctrl-C it ends, and its member leaves."""
    produced = topic.produce(50)
    file = reader.folder / f"{topic.name}.py"
    file.write_text(program(reader, topic), encoding="utf-8")
    with Worker(reader, file) as worker:
        worker.until(lambda lines: len(lines) >= len(produced))
        topic.wait_until_committed(topic.name)
        worker.send(signal.SIGINT)
        assert worker.ended() != 0
        assert "KeyboardInterrupt" in worker.errors
        assert sorted(topic.printed(worker.lines)) == produced
    assert topic.members(topic.name) == []
