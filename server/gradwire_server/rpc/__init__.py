"""The gRPC service: calls, streams, and large values."""
