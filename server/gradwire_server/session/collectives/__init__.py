"""Collectives between the sessions of a group: their handler, and what each kind does."""
