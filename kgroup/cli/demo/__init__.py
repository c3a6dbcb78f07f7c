"""``kgroup demo``: a group at work, all that can happen to it, and an account of every line.

Empty on purpose: workers are started from modules of this package, and need little of it.
"""
