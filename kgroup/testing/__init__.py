"""Helpers for tests with a real Kafka, an embedded one, or a simulation in virtual time.

``plugin`` has the pytest fixtures. ``kafka`` has a real broker as a context manager, ``embedded``
an embedded cluster in a thread. ``memory`` runs a group with ``kgroup.broker.in_memory`` in one
event loop. ``simulation`` runs programs in virtual time with faults. ``admin`` changes topics,
records and offsets on any broker. The other modules are their parts.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
