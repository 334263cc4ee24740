"""Documents as messages: bytes to types and back, and the loop of a Kafka worker."""
