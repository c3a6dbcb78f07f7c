"""Records of assigned partitions: fetched, split by partition, handed over in batches."""
