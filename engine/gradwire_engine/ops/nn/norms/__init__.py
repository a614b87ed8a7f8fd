"""Normalization: of batches, layers, groups, single samples, and over neighbouring channels."""

from gradwire_engine.ops.nn.norms import instance_norm, local_norm, norm

__all__ = ["instance_norm", "local_norm", "norm"]
