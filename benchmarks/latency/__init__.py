"""The time from producing a record until its handler has it."""
