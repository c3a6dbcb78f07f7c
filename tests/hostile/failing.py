"""A module that fails when it is imported."""

raise RuntimeError("a module\nof two lines")
