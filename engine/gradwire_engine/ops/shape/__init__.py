"""Ops that change sizes and strides: views, joins, splits, padding."""

from gradwire_engine.ops.shape import axis_gather, copy_slices, dual, join, padding, shape, shuffle, splits, strided

__all__ = ["join", "axis_gather", "padding", "copy_slices", "dual", "shape", "shuffle", "splits", "strided"]
