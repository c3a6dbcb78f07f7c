"""Security: TLS and SASL for the group's own connections, and the same settings for librdkafka.

``settings`` has the values that programs give. ``ssl_contexts`` makes Python's TLS from them,
``mechanisms`` the messages of a SASL login, and ``librdkafka`` the properties of the data plane.
``properties`` reads the properties of other clients, by the one table of ``property_table``
and the kinds of values in ``property_values``.
Only ``oidc`` does network I/O: it requests tokens from an identity provider. Connections to
brokers are ``kgroup.wire``'s, by ``tls``, ``login`` and ``logins``.
"""
