"""One generation of a consumer group: its states, its tasks, its drain, its commits.

Begin with ``runner`` (the steps of a generation, in their order) and ``lifecycle`` (its end).
"""
