"""Small JSON files by which processes of tests remember something or share it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_state(path: Path, content: Any) -> None:
    """Replace the file as a whole: a process killed here leaves the old one, never half a file.

    Two processes must not write the same file at the same time.
    """
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(path)
