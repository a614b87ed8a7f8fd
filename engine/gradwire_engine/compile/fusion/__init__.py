"""Fusion: runs of a plan's elementwise and row-wise instructions as loops in machine code, compiled by LLVM."""
