"""Dispatch modes: the ATen ops that a call stands for are shown to user code, which may compute something else."""
