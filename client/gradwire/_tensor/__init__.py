"""Tensor, and the functions and methods that call ops."""
