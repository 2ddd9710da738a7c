"""The only configuration of a broker node: `server.properties`, with Kafka's names where Kafka has one."""
