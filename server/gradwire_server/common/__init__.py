"""Shared by all processes of the server: errors, limits, logging, wire encoding, shared counters."""
