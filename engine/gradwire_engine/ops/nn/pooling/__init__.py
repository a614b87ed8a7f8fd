"""Pooling: maxima and means of windows, and the way back from maxima."""

from gradwire_engine.ops.nn.pooling import adaptive_max, pool, unpool, wide_pool

__all__ = ["adaptive_max", "pool", "unpool", "wide_pool"]
