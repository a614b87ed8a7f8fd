"""Optimizers: PyTorch's, step by step, as ops on the server; and schedules of their learning rates."""

from gradwire.optim import lr_scheduler, swa_utils
from gradwire.optim._adam import Adam, AdamW
from gradwire.optim._adam_variants import Adamax, NAdam, RAdam
from gradwire.optim._lbfgs import LBFGS
from gradwire.optim._optimizer import Optimizer
from gradwire.optim._scaled import Adadelta, Adagrad, RMSprop, Rprop
from gradwire.optim._sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "lr_scheduler",
    "swa_utils",
]
