"""RemoteLogMetadataManager service: which segments exist, in PostgreSQL."""
