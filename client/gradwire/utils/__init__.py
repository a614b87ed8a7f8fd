"""Helpers beside the tensors (torch.utils): checkpoints and handles of hooks."""

from gradwire.utils import checkpoint, hooks

__all__ = ["checkpoint", "hooks"]
