"""The local log of a broker node, in Kafka's on-disk format (K-6)."""
