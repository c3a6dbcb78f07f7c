"""``python -m kgroup`` is the command ``kgroup``."""

from __future__ import annotations

from kgroup.cli import main

if __name__ == "__main__":
    main(prog_name="kgroup")
