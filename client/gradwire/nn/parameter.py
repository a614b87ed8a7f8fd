"""The module of the name that PyTorch programs import Parameter from."""

from gradwire.nn._parameter import Parameter

__all__ = ["Parameter"]
