"""A small ZooKeeper in virtual time, for the group protocols that Kafka had before its own.

Only what those protocols need: znodes, ephemeral ones that end with their session, one-shot
watches, servers that lag behind each other, and sessions that expire late. ``tree`` and
``ensemble`` do no I/O; ``servers`` puts an ensemble on the simulated network, and ``client`` is a
program's side of a session.
"""
