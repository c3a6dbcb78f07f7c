"""``kgroup consume``: prints records of topics, in a group or without one."""
