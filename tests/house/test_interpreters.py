"""tox runs every Python that kgroup supports, and every test in one environment of each."""

from __future__ import annotations

import configparser
import re

from tests.conftest import ROOT


def setting(file: str, name: str, key: str) -> list[str]:
    """The lines of a setting."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / file, encoding="utf-8")
    return config[name][key].split("\n")


def test_classifiers_name_what_is_run() -> None:
    """tox has an environment for each Python of the classifiers, and for no other."""
    lines = setting("setup.cfg", "metadata", "classifiers")
    supported = {line.rpartition(" :: ")[2] for line in lines if re.search(r":: 3\.\d+$", line)}
    factors = re.findall(r"py3\{?([\d,]+)", " ".join(setting("tox.ini", "tox", "env_list")))
    run = {f"3.{minor}" for factor in factors for minor in factor.split(",")}
    assert supported == run
    (oldest,) = setting("setup.cfg", "options", "python_requires")
    assert oldest == f">={min(run)}"


def test_every_test_has_an_environment() -> None:
    """Two other environments run exactly the tests that the main environment leaves out."""
    tests, sweeps = (f"testenv:{name}-py3{{11,13,14}}" for name in ("tests", "sweeps"))
    ignored = [line.removeprefix("--ignore=") for line in setting("tox.ini", tests, "ignored")]
    swept = setting("tox.ini", "testenv", "sweeps")
    assert ignored == ["", "tests/spark", *swept[1:]]
    assert all((ROOT / path).exists() for path in ignored)
    runs = {sweeps: "{[testenv]sweeps}", "testenv:spark-py3{11,13}": "tests/spark"}
    for environment, run in runs.items():
        commands = setting("tox.ini", environment, "commands")
        assert any(line.endswith(f"{{posargs:{run}}}") for line in commands)
