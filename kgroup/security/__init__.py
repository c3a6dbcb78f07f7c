"""Security: TLS and SASL for the group's own connections, and the same settings for librdkafka.

``settings`` has the values that programs give. ``ssl_contexts`` makes Python's TLS from them,
``mechanisms`` the messages of a SASL login, and ``librdkafka`` the properties of the data plane.
``properties`` reads the properties of other clients, by the one table of ``property_table``.
Nothing here does network I/O: ``kgroup.wire.tls`` and ``kgroup.wire.login`` do.
"""
