"""Normalization: batch, layer, group, instance, RMS and local response norms."""

from gradwire_engine.ops.nn.norms import instance_norm, local_norm, norm

__all__ = ["instance_norm", "local_norm", "norm"]
