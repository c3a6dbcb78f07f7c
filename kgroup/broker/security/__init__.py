"""The embedded broker's security: users, logins, TLS and access control.

``settings`` has the values that programs give and ``state`` what a running cluster makes of them.
``login_states`` decides what a request may do before, during and after a login; ``mechanisms`` has
the broker's side of each SASL mechanism. Nothing here does network I/O.
"""
