"""Ops that reduce or scan dimensions."""

from gradwire_engine.ops.reduce import averages, cumulative, quantile, reduce, scan

__all__ = ["cumulative", "averages", "quantile", "reduce", "scan"]
