"""Helpers beside the tensors (torch.utils): checkpoints, handles of hooks, data sets and loaders."""

from gradwire._base.wiring import names_of_paths
from gradwire.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

__getattr__ = names_of_paths(__name__)
