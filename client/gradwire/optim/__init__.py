"""Optimizers: PyTorch's, step by step, as ops on the server."""

from gradwire.optim._adam import Adam, AdamW
from gradwire.optim._optimizer import Optimizer
from gradwire.optim._sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]
