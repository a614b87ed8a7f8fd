"""Shared by the whole engine: errors, the context of a computation, devices, dtypes, random numbers."""
