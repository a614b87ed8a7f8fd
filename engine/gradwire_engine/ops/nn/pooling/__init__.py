"""Pooling by maximum, mean and power mean; unpooling."""

from gradwire_engine.ops.nn.pooling import adaptive_max, pool, primitives, unpool, wide_pool

__all__ = ["adaptive_max", "pool", "primitives", "unpool", "wide_pool"]
