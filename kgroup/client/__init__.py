"""A member's requests to the cluster and to its coordinator, and the reaction to each error."""
