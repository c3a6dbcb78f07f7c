"""Fetches the records of assigned partitions, splits them by partition and hands out batches."""
