"""What the service decides: no gRPC, SQL, files, environment or clock in here."""
