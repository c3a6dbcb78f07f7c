"""The version of kgroup, for ``kgroup.__version__``, brokers (KIP-511) and the package's metadata.

It is not read from the metadata: the modules that can read it take 2 MiB and several milliseconds,
in every process.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
