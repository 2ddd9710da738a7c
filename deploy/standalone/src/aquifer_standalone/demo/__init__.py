"""The main job, shown end to end with unmodified Kafka clients."""
