"""The graph's own surface (torch.autograd.graph): nodes."""

from __future__ import annotations

from gradwire._nodes import Node

__all__ = ["Node"]
