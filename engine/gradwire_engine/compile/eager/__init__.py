"""Loops of machine code for ops outside of plans: which there are, and how they are loaded."""
