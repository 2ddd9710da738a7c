"""What the storage service does, without gRPC, S3, files, environment or clock."""
