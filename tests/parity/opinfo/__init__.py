"""PyTorch's own samples of its operators, run by PyTorch and by gradwire.

`python -m tests.parity.opinfo` counts how many agree. PyTorch's wheel ships the samples (`op_db`).
"""
