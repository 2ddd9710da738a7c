"""Kafka's own `__remote_log_metadata` topic: its records, and moving between it and the metadata service."""
