"""Hooks of modules: backward hooks, and hooks of all modules."""
