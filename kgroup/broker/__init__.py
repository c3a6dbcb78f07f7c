"""An embedded Kafka broker for quick starts, tests and simulation. It keeps nothing on disk."""
