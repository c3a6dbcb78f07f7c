"""Spark for tests, from pip and Maven Central alone: sessions, a cluster, and what they run on.

``session`` is a SparkSession that ends for sure, ``SparkCluster`` a standalone master with its
workers; ``find_java`` says which Java they run on. ``jars`` fetches what Spark does not ship.
PySpark is imported where it is used. Linux and macOS.
"""

from kgroup.testing.spark.cluster import SparkCluster
from kgroup.testing.spark.java import Java, SparkUnavailableError, find_java
from kgroup.testing.spark.session import session

__all__ = ["Java", "SparkCluster", "SparkUnavailableError", "find_java", "session"]
