"""``kgroup groups``: lists and describes consumer groups, resets their offsets, deletes them."""
