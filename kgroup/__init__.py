"""kgroup: a Kafka consumer group whose generations are values you hold.

These are the names that programs import; no module of kgroup imports them from here. The quick
start of README.md is a complete program. ``__init__.pyi`` lists the names, and lazy-loader imports
their modules on first use: Spark's executors, and every run of pytest that has kgroup's plugin,
import ``kgroup`` without needing a group, an event loop or the codec.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of packages that have a plugin, and warns if one
was imported before. A program may import kgroup and then run pytest with warnings as errors.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
