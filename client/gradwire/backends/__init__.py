"""Switches of PyTorch's backends (torch.backends): there to be set, the server has its own."""

from gradwire.backends import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]
