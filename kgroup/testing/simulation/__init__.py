"""A cluster, a network and any number of members in one process, in virtual time, by a seed.

``simulate`` runs one seed and says what was seen and what was wrong with it; ``check`` runs many
and fails with the shortest schedule of faults that still fails. See docs/simulation.md.
"""
