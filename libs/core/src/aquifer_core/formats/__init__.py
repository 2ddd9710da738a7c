"""Kafka's on-disk formats as pure functions over buffers; import the module you need (K-6)."""
