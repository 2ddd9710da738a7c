"""Apache Kafka from Maven jars, as supervised processes on loopback."""
