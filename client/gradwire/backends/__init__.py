"""Switches of PyTorch's backends (torch.backends): there to be set, the server has its own."""

from gradwire._base.wiring import names_of_paths
from gradwire.backends import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]

__getattr__ = names_of_paths(__name__)
