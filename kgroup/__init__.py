"""kgroup: a Kafka consumer group whose generations are values you hold."""

__all__: list[str] = []
