"""What a run found: kept as JSON, and shown as Markdown and pictures."""
