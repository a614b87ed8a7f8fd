"""What registering a hook returns (torch.utils.hooks)."""

from gradwire._graph.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
