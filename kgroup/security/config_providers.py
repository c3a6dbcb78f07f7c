"""References to values that stand elsewhere, as ``${env:NAME}``.

They are those of Kafka's ``EnvVarConfigProvider``, ``FileConfigProvider`` and
``DirectoryConfigProvider``, under their usual names.

Source: KIP-297, KIP-421, KIP-632, KIP-887.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kgroup.security.properties_file import decode, parse

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[^}:]*):(?:(?P<path>[^}:]*):)?(?P<key>[^}:]*)\}")


def resolve(text: str) -> str:
    """Replace the references in a text by the values to which they refer.

    Raises:
        ValueError: a reference cannot be resolved; the message shows the reference, no value.
    """
    return _REFERENCE.sub(_value, text)


def _value(found: re.Match[str]) -> str:
    provider, path, key = found["provider"], found["path"] or "", found["key"]
    if provider not in _PROVIDERS:
        raise ValueError(
            f"it has a reference to another provider than {', '.join(map(repr, _PROVIDERS))}"
        )
    try:
        return _PROVIDERS[provider](path, key)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        # Without the cause, whose traceback may show the contents of a file.
        raise ValueError(f"the reference {found[0]} cannot be resolved: {reason}") from None


def _environment(path: str, key: str) -> str:
    if path:
        raise ValueError("a reference to an environment variable is ${env:NAME}, without a path")
    if key not in os.environ:
        raise ValueError(f"the environment variable {key} is not set")
    return os.environ[key]


def _file(path: str, key: str) -> str:
    properties = dict(parse(decode(Path(path).read_bytes())))
    if key not in properties:
        raise ValueError(f"the file has no property {key}")
    return properties[key]


def _folder(path: str, key: str) -> str:
    if not path or Path(key).name != key:
        raise ValueError("it must be ${directory:FOLDER:FILE}, with a file of that folder")
    return decode((Path(path) / key).read_bytes())


_PROVIDERS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "env": _environment,
    "file": _file,
    "directory": _folder,
    "dir": _folder,
}
