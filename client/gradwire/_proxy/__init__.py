"""Tensor proxies: handles, cached descriptions, results of commands, the shadow graph."""
