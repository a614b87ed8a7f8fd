"""Tensors in files on the client's disk, and explanations of tensors in words."""
