"""The cells of benchmarks/spark.py, a module each."""
