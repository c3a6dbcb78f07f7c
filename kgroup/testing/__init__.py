"""What users and kgroup itself test with: a real Kafka, the embedded one, virtual time.

``memory``: a group beside ``kgroup.broker.in_memory``, in one event loop. ``plugin``: pytest's
fixtures ``real_kafka`` and ``own_kafka``. ``kafka``: the same broker as a context manager.
``admin``: topics, records and offsets of any broker. The others are their parts.
"""
