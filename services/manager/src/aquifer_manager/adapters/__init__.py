"""What connects the manager's decisions to brokers, files and telemetry."""
