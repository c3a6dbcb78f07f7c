"""One generation of a consumer group: its states, its tasks, its drain, its commits."""
