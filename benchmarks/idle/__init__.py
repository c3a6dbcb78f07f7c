"""What members cost that have nothing to read."""
