"""Bytes to a server and back: connections, streams, retransmission."""
