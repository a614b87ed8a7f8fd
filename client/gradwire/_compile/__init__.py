"""Compiled functions: recorded once, then run as programs."""
