"""Kafka's wire protocol as a client speaks it: streams, connections, versions, the border to kio."""
