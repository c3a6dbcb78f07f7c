"""Tasks that can end a generation: heartbeats, partitions, subscription, stuck processing.

A watcher is an async function or method that returns an `End`; only that of ``brokers`` ends no
generation. It does not know what a `Generation` is: ``kgroup.generation.runner`` starts it, and
gives it what it polls. So it imports from ``kgroup.event_emitter``, ``kgroup.client`` and the
layers below (``kgroup.wire``, decisions, small mechanisms, values), and neither from
``kgroup.generation`` nor from ``kgroup.records``.
"""
