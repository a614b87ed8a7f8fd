"""Tensor proxies: handles, cached descriptions, and results of commands."""
