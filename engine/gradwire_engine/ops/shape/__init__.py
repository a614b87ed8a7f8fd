"""Ops that change sizes and strides: views, joins, splits, padding."""

from gradwire_engine.ops.shape import join, lines, padding, rebased, shape, shuffle, splits, strided

__all__ = ["join", "lines", "padding", "rebased", "shape", "shuffle", "splits", "strided"]
