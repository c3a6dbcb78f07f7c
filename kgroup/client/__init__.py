"""What a member says to a cluster, and what follows the errors that it answers."""
