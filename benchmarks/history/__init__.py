"""How groups came to be: one change of a group, in each of the protocols that Kafka had."""
