"""Kafka-protocol broker node with tiered storage."""
