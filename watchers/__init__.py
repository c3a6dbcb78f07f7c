"""Tasks that can end a generation: heartbeats, partitions, subscription, stuck processing.

A watcher is an async function or method that returns an `End`. It does not know what a `Generation`
is: ``kgroup.generation.runner`` starts it, and gives it what it polls. Only that of ``brokers``
ends no generation, and runs between generations too: ``kgroup.member`` starts it. So a watcher
imports from ``kgroup.event_emitter``, ``kgroup.client`` and the layers below (``kgroup.wire``,
decisions, small mechanisms, values), and neither from ``kgroup.generation`` nor from
``kgroup.records``.
"""
