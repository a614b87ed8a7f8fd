"""Tracing by dispatch (torch.fx.experimental)."""

from gradwire._base.wiring import names_of_paths

__all__: list[str] = []

__getattr__ = names_of_paths(__name__)
