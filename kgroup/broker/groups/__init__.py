"""The classic group coordinator of the embedded broker, as a pure state machine.

It does no I/O and has no clock and no randomness of its own: requests, the time and new ids come
in, responses go out. ``requests`` and ``responses`` are the contract with the server,
``coordinator`` is the entry point, ``rule_tables`` has the rules, and ``machine`` explains how they
work together.

Source: Apache Kafka 4's ``ClassicGroup``, ``GroupMetadataManager``, ``OffsetMetadataManager``
and ``GroupCoordinatorService``.
"""
