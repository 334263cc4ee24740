"""Kafka programs of stream-dedup."""
