"""kgroup: a Kafka consumer group whose generations are values you hold.

The first names to know:

- ``run(config, handle)`` is a whole worker on trio: it calls a function for each batch, commits
  what was processed, and closes the group at SIGTERM and Ctrl-C. ``kgroup.threaded.run`` is the one
  for plain functions, ``kgroup.aio.run`` the one for asyncio.
- ``GroupConfig`` has the settings; ``Security`` those of TLS and logins.
- ``ConsumerGroup`` yields a ``Generation`` at a time, which reads records, runs the program's tasks
  and commits offsets. ``kgroup.threaded`` and ``kgroup.aio`` have these two as well.
- ``retrying`` and ``DeadLetters`` are for records that keep failing.
- ``kgroup.errors`` has the exceptions, ``kgroup.events`` what an ``on_event`` is called with.

``kgroup.testing``, ``kgroup.spark`` and ``kgroup.metrics`` are imported by themselves. The quick
start of README.md is a complete program.

No module of kgroup imports names from here. ``__init__.pyi`` lists them, and lazy-loader imports
their modules on first use: Spark's executors, and every run of pytest that has kgroup's plugin,
import ``kgroup`` without needing a group, an event loop or the codec.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of packages that have a plugin, and warns if one
was imported before. A program may import kgroup and then run pytest with warnings as errors.
"""

import lazy_loader

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Find a public name, or the version, on first use."""
    if name == "__version__":
        from kgroup.version import VERSION

        return VERSION
    return _find(name)
