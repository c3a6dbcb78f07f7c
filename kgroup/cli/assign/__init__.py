"""``kgroup assign``: compares the assignments of assignors, or answers recorded calls of one."""
