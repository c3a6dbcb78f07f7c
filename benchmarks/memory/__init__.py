"""The memory of a consumer that is much slower than its topic."""
