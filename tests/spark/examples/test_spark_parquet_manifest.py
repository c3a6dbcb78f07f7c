"""The plain Parquet example: which batches the manifests accept, and which they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.examples.driver import load
from tests.spark.examples.fake_batch import FakeBatch


@pytest.fixture
def example() -> Any:
    """A module of this test's own."""
    return load("spark_parquet_manifest")


@pytest.fixture
def base(tmp_path: Path) -> str:
    """The folder of an empty sink."""
    (tmp_path / "manifests").mkdir()
    return str(tmp_path)


def test_only_what_begins_at_the_sinks_end_is_published(example: Any, base: str) -> None:
    """A longer range with the same start, and one that starts within published ones, are not."""
    example.publish(FakeBatch.of(0, 0, 10), ["data/a"], base)
    for start, end in ((0, 10), (0, 15), (5, 15), (11, 15)):
        with pytest.raises(example.SinkMovedError, match=f"lines-0\\[{start}:{end}\\]"):
            example.publish(FakeBatch.of(0, start, end), ["data/never"], base)
    example.publish(FakeBatch.of(0, 10, 15), ["data/b"], base)
    assert example.published(base) == [f"{base}/data/a", f"{base}/data/b"]
    assert example.last(base)["offsets"] == {"lines-0": 15}


@pytest.mark.parametrize(("other", "refused"), [(0, True), (1, False)])
def test_what_another_driver_publishes_meanwhile_matters_where_it_is_the_same_partition(
    example: Any, base: str, monkeypatch: pytest.MonkeyPatch, other: int, refused: bool
) -> None:
    """If two drivers create the same manifest, one uses the next number: there is no conflict."""
    create = example.create

    def late(*args: Any) -> bool:
        monkeypatch.setattr(example, "create", create)
        example.publish(FakeBatch.of(other, 0, 15), ["data/other"], base)
        made: bool = create(*args)
        return made

    monkeypatch.setattr(example, "create", late)
    if refused:
        with pytest.raises(example.SinkMovedError):
            example.publish(FakeBatch.of(0, 0, 10), ["data/late"], base)
    else:
        example.publish(FakeBatch.of(0, 0, 10), ["data/late"], base)
    files = ["data/other"] if refused else ["data/other", "data/late"]
    assert [name for entry in example.manifests(base) for name in entry["files"]] == files
    assert [entry["number"] for entry in example.manifests(base)] == [*range(1, len(files) + 1)]
