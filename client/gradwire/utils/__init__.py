"""Helpers beside the tensors (torch.utils): checkpoints, handles of hooks, data sets and loaders."""

from gradwire.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
