"""How long a member takes to its first record, and to leave."""
