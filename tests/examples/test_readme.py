"""The example in README.md, run as it stands but for the names of broker and topic."""

from __future__ import annotations

import re
import signal

from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

PROCESS = '''
async def process(messages):
    """What README leaves to its reader."""
    for message in messages:
        print(message.topic(), message.partition(), message.offset())
    await trio.lowlevel.checkpoint()


'''


def program(reader: Reader, topic: Topic) -> str:
    """README's Python, with `process`, for a broker and a topic."""
    text = (reader.folder / "README.md").read_text(encoding="utf-8")
    examples: list[str] = re.findall(r"^```python\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    example, _on_spark = examples  # the other one is tested on Spark
    assert example.count('"localhost:9092"') == 1
    assert example.count('"orders"') == 2
    named = example.replace("localhost:9092", topic.bootstrap_servers)
    return PROCESS + named.replace('"orders"', f'"{topic.name}"')


def test_the_example_of_readme_runs(reader: Reader, topic: Topic) -> None:
    """It processes every record once and commits; Ctrl-C ends it, and the member is gone."""
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
