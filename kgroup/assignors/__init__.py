"""How a leader divides the partitions of the group's topics among its members."""
