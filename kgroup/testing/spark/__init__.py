"""Spark for tests, from pip and Maven Central only: sessions, and a standalone cluster.

``session`` makes a SparkSession that ends with its block, ``SparkCluster`` a standalone master with
its workers; ``find_java`` finds the Java that runs them. ``jars`` downloads what Spark does not
ship. PySpark is imported only when it is used. For Linux and macOS.
"""

from kgroup.testing.spark.cluster import SparkCluster
from kgroup.testing.spark.java import Java, SparkUnavailableError, find_java
from kgroup.testing.spark.session import session

__all__ = ["Java", "SparkCluster", "SparkUnavailableError", "find_java", "session"]
