"""Kafka's wire protocol as a client speaks it: streams, connections, versions, kio's border."""
