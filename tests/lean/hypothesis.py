"""Stands before hypothesis on the path of child processes, also of benchmarks, and is not there.

kio imports hypothesis where it is installed, which takes a process a second that users' have not.
"""

raise ImportError
