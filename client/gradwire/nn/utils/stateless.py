"""A module called with other tensors as its parameters, under its old name; it is gradwire.func.functional_call."""

from gradwire.func import functional_call

__all__ = ["functional_call"]
