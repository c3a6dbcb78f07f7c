"""One function for each API of Kafka that the embedded broker serves, by subject.

A handler takes a ``Call`` and gives the answer as a mapping of kio's field names that holds for
every version (``kgroup.broker.response_versions`` fits it). It reads a field that not all versions
of a request have with ``getattr`` and that field's meaning when absent.
"""
