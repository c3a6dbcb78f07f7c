"""The classic group coordinator of the embedded broker, as a pure state machine.

No I/O, no clock, no chance of its own: requests, the time and new ids come in, answers go out.
``requests`` and ``responses`` are the contract with the server, ``coordinator`` the door,
``tables`` the rules. Everything else is how the rules are carried out.

Source: Apache Kafka 4's ``ClassicGroup``, ``GroupMetadataManager``, ``OffsetMetadataManager``
and ``GroupCoordinatorService``.
"""
