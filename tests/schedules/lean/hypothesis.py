"""Stands before hypothesis on the path of worker processes, and is not there.

kio imports hypothesis where it is installed, which takes a worker a second that users' have not.
"""

raise ImportError
