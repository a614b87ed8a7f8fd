"""Tensors from and to files and other libraries, and explanations for people."""
