"""Kafka's wire protocol for a client: streams, connections, versions and the codec over kio."""
