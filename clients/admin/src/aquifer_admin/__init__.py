"""The aquifer command: topics, segments, partitions, status."""
