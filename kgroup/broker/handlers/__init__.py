"""One function for each API of Kafka that the embedded broker serves, by subject.

A handler takes a ``RequestContext`` and returns a mapping of kio's field names that serves every
version of the response (``kgroup.broker.response_versions`` fits it). It reads a field that not all
versions of a request have with ``getattr``, whose default is the meaning of its absence.
"""
