"""The parts of benchmarks/assignors.py: cases, the two sides that are timed, and the table."""
