"""Tasks that end a generation: heartbeats, partition watcher, subscription watcher."""
