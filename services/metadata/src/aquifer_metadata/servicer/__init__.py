"""The gRPC side: converts, calls the domain's ports, converts back."""
