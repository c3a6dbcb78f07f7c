"""A generation whose partitions Spark reads: micro-batches, offsets committed after the sink."""
