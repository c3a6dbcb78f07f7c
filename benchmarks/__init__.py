"""Measures kgroup and its peers on a real Kafka: ``python -m benchmarks --help``."""
