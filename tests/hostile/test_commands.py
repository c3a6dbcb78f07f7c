"""Every option of every command with every hostile text: accepted, or a usage error of one line.

Options are found by introspection of click's parameters, so new ones are tested too. No command
does its work here: the function that it calls for that is replaced by one that ends the program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner, Result

from kgroup.cli import SUBCOMMANDS, main
from kgroup.cli.options import FilePath, InputFile, Number, WholeNumber
from kgroup.testing.spark.__main__ import prepare
from tests.hostile.values import TEXTS

DONE: Final = 0
REFUSED: Final = (1, 2)
LONGEST_OUTPUT: Final = 3000

#: Each command with the functions that it calls for its work.
WORK: Final = {
    "assign": ("kgroup.cli.assign.command.fetch_group", "kgroup.cli.assign.command.evaluate"),
    "broker": ("kgroup.cli.broker.serve_cluster",),
    "consume": ("kgroup.cli.consume.command.GroupCluster",),
    "demo": ("kgroup.cli.demo.command._run_until_signal", "kgroup.cli.demo.command.require_spark"),
    "groups": ("kgroup.cli.groups.command.connect",),
    "simulate": (
        "kgroup.cli.simulate.check",
        "kgroup.testing.simulation.simulate",
        "kgroup.cli.simulate.find",
        "kgroup.cli.simulate.record",
    ),
    "timeline": ("kgroup.cli.timeline.command.read",),
}
#: Further arguments that a command needs besides the option under test.
BESIDE: Final[dict[tuple[str, str], list[str]]] = {
    ("assign", "bootstrap_servers"): ["--group", "g"],
    ("assign", "group_id"): ["--bootstrap-servers", "localhost:1"],
    ("assign", "assignors"): ["--json"],
    ("assign", "output"): ["-"],
    ("simulate", "trace"): ["--seeds", "1"],
}
_CLUSTER: Final = ["--bootstrap-servers", "localhost:1"]
#: Arguments without which a command refuses everything; an option under test may follow.
REQUIRED: Final[dict[str, list[str]]] = {
    "consume": ["t", *_CLUSTER],
    "groups list": _CLUSTER,
    "groups describe": _CLUSTER,
    "groups lag": _CLUSTER,
    "groups reset": ["--group", "g", "--to", "latest", *_CLUSTER],
    "groups delete": ["--group", "g", *_CLUSTER],
}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that takes options, by its words."""
    for name, entry in SUBCOMMANDS.items():
        command = entry.load()
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", one) for word, one in command.commands.items())
        else:
            yield name, command


COMMANDS: Final = dict(commands())
#: Texts that only a shell can pass, and paths of files that do not exist.
SHELL: Final = (
    "\udcff\udcfe",
    "/",
    "/nowhere/at/all",
    "/proc/self/mem",
    "/dev/null",
    "x" * 300,
    "/" + "x/" * 5000,
    "sys:exit",
    "sys:path",
    "builtins:print",
    "builtins:object",
    "tests.hostile.samples:raises",
    "tests.hostile.samples:Unmade",
    "tests.hostile.samples:unnamed",
    "tests.hostile.samples:lying",
    "tests.hostile.failing:x",
    "tests.hostile.exiting:x",
    "kgroup.broker:\udcff",
    *("offsets.topic.num.partitions=" + text for text in ("nan", "0", "-1", "2147483647", "1e3")),
    *("transaction.state.log.num.partitions=" + text for text in ("10001", "2147483648")),
    *("num.partitions=" + text for text in ("2147483647", "9" * 5000, "\udcff", "")),
    "broker.rack=\udcff",
    "node.id=2147483648",
    "t:0",
    "t:10001",
    "t:" + "9" * 5000,
    "t\udcff:1",
    "0:99999999999999999999999",
    "0:1000001",
    f"{2**63}:{2**63 + 1}",
    "5:1",
    "1:",
    ":1",
)


class WorkBeginsError(SystemExit):
    """Raised in place of a command's work, once its options are accepted."""

    def __init__(self) -> None:
        super().__init__(DONE)


def begin(*_: object, **__: object) -> Any:
    """Replaces a command's work."""
    raise WorkBeginsError


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for places in WORK.values():
        for place in places:
            monkeypatch.setattr(place, begin)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("tests.hostile.failing", "tests.hostile.exiting"):
        sys.modules.pop(name, None)


def options() -> list[Any]:
    """Every option and argument of every command."""
    return [
        pytest.param(name, option, id=f"{name}-{option.name}")
        for name, command in COMMANDS.items()
        for option in command.params
    ]


def invoke(*arguments: str, given: bytes = b"") -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, arguments, input=given)


def check(result: Result, text: str = "") -> None:
    """Check that a command succeeded or reported an error in one line.

    click's own types show what they were given, in full.
    """
    error = result.exception
    assert error is None or isinstance(error, SystemExit), repr(error)
    assert result.exit_code in (DONE, *REFUSED)
    if result.exit_code != DONE:
        said = result.stderr or result.output
        assert "Traceback" not in said
        assert said.strip()
        assert len(said) < LONGEST_OUTPUT + len(text)
        last = said.rstrip("\n").rpartition("\n")[2]
        assert ":" in last, said


@pytest.mark.parametrize(("name", "option"), options())
def test_no_text_crashes_a_command(name: str, option: click.Parameter) -> None:
    """A command accepts any option's text or names what is wrong with it."""
    beside = [*REQUIRED.get(name, ()), *BESIDE.get((name, option.name or ""), ())]
    if isinstance(option, click.Option) and option.is_flag:
        check(invoke(*name.split(), *beside, option.opts[0]))
        return
    for text in (*TEXTS, *SHELL):
        given = [option.opts[0], text] if isinstance(option, click.Option) else ["--", text]
        check(invoke(*name.split(), *beside, *given), text)


@pytest.mark.parametrize(("name", "option"), options())
def test_every_number_has_bounds_in_the_help(name: str, option: click.Parameter) -> None:
    """Every number has a bounded type, and every path one that refuses impossible paths."""
    kind = option.type
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        assert isinstance(kind, WholeNumber | Number), f"{name} {option.name} has no bounds"
        assert kind.min is not None
        assert kind.max is not None
        assert f"{kind.min}<=x<={kind.max}" in "".join(
            invoke(*name.split(), "--help").output.split()
        )
    if isinstance(kind, click.Path):
        assert isinstance(kind, FilePath)
    if isinstance(kind, click.File):
        assert isinstance(kind, InputFile)
    if option.name == "bootstrap_servers":
        for text in ("a..b:9092", "a", ":1", "a:99999"):
            given = [*REQUIRED.get(name, ()), "--bootstrap-servers", text]
            result = invoke(*name.split(), *given, *BESIDE.get((name, option.name), ()))
            assert result.exit_code == 2
            assert "is refused" in result.stderr


GROUP: Final = {
    "topics": {"t": {"partitions": 2}},
    "members": [{"member_id": "m", "topics": ["t"]}],
}
#: Texts that are no JSON, and JSON that describes no group.
DOCUMENTS: Final[dict[str, bytes]] = {
    "nothing": b"",
    "nul": b"\0",
    "no UTF-8": b'"\xff"',
    "twice": b'{"topics": {}, "topics": {}, "members": []}',
    "twice in many": b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b',"19999":2}',
    "NaN": b'{"topics": NaN}',
    "Infinity": b'{"topics": {}, "members": [], "x": -Infinity}',
    "beyond floats": b'{"topics": {}, "members": [], "x": 1e999}',
    "deep": b'{"topics":' * 100_000,
    "deep echo": b'{"topics": {}, "members": [], "x":' + b"[" * 900 + b"]" * 900 + b"}",
    "digits": b'{"topics": {"t": {"partitions": ' + b"9" * 5000 + b"}}}",
    "surrogate": b'{"topics": {"\\ud800": {"partitions": 1}}, "members": []}',
    "lone member": b'{"topics": {}, "members": [{"member_id": "\\udfff", "topics": []}]}',
    **{
        f"{count} partitions": json.dumps(
            {**GROUP, "topics": {"t": {"partitions": count}}, "assignor": "range"}
        ).encode()
        for count in (-1, 1.5, True, None, "1", 1_000_001, 2**31 - 1, 2**31, 10**30)
    },
    "racks": b'{"topics": {"t": {"partitions": 2147483647, "racks": {}}}, "members": []}',
    "too many members": json.dumps({"topics": {}, "members": [0] * 100_001}).encode(),
    "long": b" " * (32 * 1024 * 1024 + 1),
    "long line end": b"[" + b" " * (32 * 1024 * 1024) + b"\n{}",
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_document_crashes_assign(tmp_path: Path, document: str) -> None:
    """A hostile file, standard input or line is refused with a reason."""
    text = DOCUMENTS[document]
    file = tmp_path / "group.json"
    file.write_bytes(text)
    for result in (
        invoke("assign", str(file)),
        invoke("assign", "-", given=text),
        invoke("assign", "--json", given=text.replace(b"\n", b" ") + b"\n"),
    ):
        check(result)
    if document not in ("nothing", "deep echo"):
        assert invoke("assign", str(file)).exit_code == 1


def test_answers_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is strict JSON, whatever the other lines are."""
    extra = [b"0", b"1e308", b"-0.0", b'"\\ud800"', b"[[]]", b"null", b"9" * 4000, b"1E+2"]
    lines = [b'{"topics":{},"members":[],"assignor":"range","x":' + text + b"}\n" for text in extra]
    result = invoke("assign", "--json", given=b"".join([*lines, b'{"x":1e999}\n', lines[0]]))
    answers = result.stdout.splitlines()
    assert len(answers) == len(lines) + 1
    assert result.exit_code == 1
    assert "line 9: the number" in result.stderr

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for answer in answers:
        json.loads(answer, parse_constant=refuse)


def test_a_line_without_end_costs_no_more_than_its_limit() -> None:
    """The rest of a line that is too long is dropped, and the next line is answered."""
    good = b'{"topics":{},"members":[],"assignor":"range"}\n'
    result = invoke("assign", "--json", given=b" " * (40 * 1024 * 1024) + b"\n" + good)
    assert result.exit_code == 1
    assert "line 1: it is longer than 33554432 bytes" in result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_standard_input_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without standard input, as after the shell's ``<&-``, reports it."""
    command = COMMANDS["assign"]
    for arguments in (["--json"], ["-"]):
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(click.UsageError, match="standard input"):
            command.main(arguments, standalone_mode=False)


@pytest.mark.parametrize("arguments", [["--foo"], ["x"], ["\udcff"]])
def test_the_archive_of_spark_takes_no_arguments(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """``python -m kgroup.testing.spark`` refuses arguments."""
    assert prepare.callback is not None
    monkeypatch.setitem(prepare.callback.__globals__, "make_archive", begin)
    result = CliRunner().invoke(prepare, arguments)
    check(result)
    assert result.exit_code == 2
    assert CliRunner().invoke(prepare, []).exit_code == DONE


@pytest.mark.parametrize("count", range(3))
def test_the_text_of_a_demo_has_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A line too long for a record, a file without lines, and too much text are refused."""
    file = tmp_path / "text"
    contents: list[Callable[[], object]] = [
        lambda: file.write_bytes(b"x" * 100_001),
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(b"x" * 99_999 + b"\n"),
    ]
    contents[count]()
    result = invoke("demo", "--file", str(file))
    check(result)
    assert result.exit_code == 1
    assert os.fspath(file) in result.stderr or "characters" in result.stderr
