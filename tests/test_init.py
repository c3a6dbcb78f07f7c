"""Public names that are imported on first use."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import kgroup


def test_every_name_is_found_where_it_is_defined() -> None:
    """Each name in ``__all__`` is that of the module that defines it, and ``dir`` lists it."""
    check_names(kgroup)


def check_names(package: ModuleType) -> None:
    """The public names of a package are found; those of ``kgroup.spark`` need PySpark."""
    for name in package.__all__:
        found = getattr(package, name)
        if isinstance(found, ModuleType):
            assert import_module(f"{package.__name__}.{name}") is found
            continue
        assert getattr(import_module(found.__module__), name) is found
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_micro_batches_need_no_pyspark() -> None:
    """Programs that drive another Spark, and tests without one, import the batch's classes."""
    code = (
        "import sys; sys.modules['pyspark'] = None; import kgroup.spark;"
        " kgroup.spark.MicroBatch, kgroup.spark.foreach_batch, kgroup.spark.ReaderSettings"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_kgroup_is_enough_for_the_modules_that_programs_name() -> None:
    """What type checkers accept after ``import kgroup`` is there when the program runs, too."""
    code = (
        "import kgroup; kgroup.errors.CommitFailedError, kgroup.events.Committed,"
        " kgroup.health.Health, kgroup.monitors.Monitor, kgroup.threaded.run, kgroup.aio.run"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version() -> None:
    """It is that of the installed package, without its metadata; ``import *`` leaves it out."""
    assert kgroup.__version__ == importlib.metadata.version("kgroup")
    assert "__version__" not in vars(kgroup)["__all__"]
    code = "import kgroup, sys; kgroup.__version__; print('importlib.metadata' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_a_name_that_is_not_there() -> None:
    """Any other name raises an error that names it, even if a module of kgroup has it."""
    for name in ("Nowhere", "INT64_MAX"):
        with pytest.raises(AttributeError, match=f"kgroup attribute {name}"):
            getattr(kgroup, name)


def test_importing_kgroup_imports_no_event_loop() -> None:
    """The package itself, its values and its errors import no event loop and no client."""
    code = (
        "import kgroup, sys; kgroup.TopicPartition, kgroup.KgroupError;"
        " print(sorted({'asyncio', 'trio', 'kio', 'confluent_kafka'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
