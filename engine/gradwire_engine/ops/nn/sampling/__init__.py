"""Images resized, and looked up at real positions."""

from gradwire_engine.ops.nn.sampling import grid, resize

__all__ = ["grid", "resize"]
