"""``kgroup demo``: a group at work, all that can happen to it, and an account of every line."""

from kgroup.cli.demo.command import demo

__all__ = ["demo"]
