"""RemoteStorageManager service: segment bytes in an S3 store."""
