"""Kernels by backend and op: functions of a plan that write an instruction's result into existing memory."""

from gradwire_engine.compile.kernels import numpy, onednn

__all__ = ["numpy", "onednn"]
