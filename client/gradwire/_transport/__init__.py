"""Connections to a server: streams, retransmission, large tensors, credentials."""
