"""Kafka protocol over sockets: framing, connection state, version table, dispatch."""
