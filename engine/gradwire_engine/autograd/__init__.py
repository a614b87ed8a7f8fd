"""Backward: the traversal of the reverse graph, and what takes part in it."""
