"""What users and kgroup itself test with: a real Kafka, the embedded one, virtual time."""
