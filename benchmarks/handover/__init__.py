"""How long records wait in hand-overs, and whether any is lost or processed twice.

``scenes`` has what happens to a group, ``stage`` the processes that it happens to, ``produce`` the
traffic. ``judge`` finds gaps and faults in the workers' journals; ``part`` is the command.
"""
