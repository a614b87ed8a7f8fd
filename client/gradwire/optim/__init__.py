"""Optimizers: PyTorch's, step by step, as ops on the server; and schedules of their learning rates."""

from gradwire._base.wiring import names_of_paths
from gradwire.optim import lr_scheduler, swa_utils
from gradwire.optim._adam import Adam, AdamW
from gradwire.optim._adam_variants import Adamax, NAdam, RAdam, SparseAdam
from gradwire.optim._averaged import ASGD
from gradwire.optim._lbfgs import LBFGS
from gradwire.optim._matrices import Adafactor, Muon
from gradwire.optim._optimizer import Optimizer
from gradwire.optim._scaled import Adadelta, Adagrad, RMSprop, Rprop
from gradwire.optim._sgd import SGD

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

__getattr__ = names_of_paths(__name__)
