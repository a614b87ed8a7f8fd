"""Shared by the whole client: errors, dtypes, modes, timeouts, signals. Needs no server."""
