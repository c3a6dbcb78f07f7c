"""Benchmarks that are programs of their own: run as they are, and their output kept."""
