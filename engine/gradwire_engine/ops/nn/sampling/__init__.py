"""Resizing of images (interpolate), and sampling at real-valued positions (grid_sample)."""

from gradwire_engine.ops.nn.sampling import grid, resize

__all__ = ["grid", "resize"]
