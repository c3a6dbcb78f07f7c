"""The same group for programs without an event loop."""
