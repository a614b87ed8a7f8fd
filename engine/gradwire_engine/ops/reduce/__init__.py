"""Ops that reduce or scan dimensions."""

from gradwire_engine.ops.reduce import cumulative, middle, quantile, reduce, scan

__all__ = ["cumulative", "middle", "quantile", "reduce", "scan"]
