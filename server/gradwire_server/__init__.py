"""The gradwire server: sessions, commands, limits and the gRPC service. Knows nothing of gradient formulas."""

__version__ = "0.1.0"
