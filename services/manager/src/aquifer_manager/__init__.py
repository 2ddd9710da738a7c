"""RemoteLogManager service: copies, expires and answers tiered fetches."""
