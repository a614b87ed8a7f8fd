"""Layers, losses and containers with PyTorch's names; parameters live on the server as every tensor does."""

from gradwire.nn import functional, init, parameter, utils
from gradwire.nn._activation import GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, Softmax, Tanh
from gradwire.nn._containers import ModuleDict, ModuleList, ParameterList, Sequential
from gradwire.nn._conv import AdaptiveAvgPool2d, AvgPool2d, Conv1d, Conv2d, MaxPool2d
from gradwire.nn._layers import Dropout, Embedding, Flatten, Identity, Linear, Unflatten
from gradwire.nn._loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from gradwire.nn._module import Module
from gradwire.nn._norm import BatchNorm1d, BatchNorm2d, LayerNorm
from gradwire.nn._parameter import Parameter

__all__ = [
    "functional",
    "init",
    "parameter",
    "utils",
    "Module",
    "Parameter",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "Identity",
    "Linear",
    "Embedding",
    "Dropout",
    "Flatten",
    "Unflatten",
    "Conv1d",
    "Conv2d",
    "MaxPool2d",
    "AvgPool2d",
    "AdaptiveAvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "LayerNorm",
    "ReLU",
    "LeakyReLU",
    "Sigmoid",
    "Tanh",
    "GELU",
    "Softmax",
    "LogSoftmax",
    "MSELoss",
    "L1Loss",
    "SmoothL1Loss",
    "HuberLoss",
    "KLDivLoss",
    "NLLLoss",
    "CrossEntropyLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
]
