"""How fast records are read."""
