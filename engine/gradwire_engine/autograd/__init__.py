"""Backward: the traversal of the reverse graph, custom functions, checkpoints, saved-tensor hooks."""
