"""gRPC plumbing of both sides: servers, channels, deadlines, errors, telemetry."""
