"""Differentiation (torch.autograd): backward and grad, modes, checks, and derivatives of functions."""

from gradwire._base.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from gradwire._base.wiring import names_of_paths
from gradwire._functions.backward import backward, grad
from gradwire._graph.anomaly import detect_anomaly, set_detect_anomaly
from gradwire.autograd import anomaly_mode, forward_ad, function, functional, grad_mode, graph
from gradwire.autograd.function import Function
from gradwire.autograd.grad_mode import enforce_grad_layout_policy, set_multithreading_enabled
from gradwire.autograd.gradcheck import gradcheck, gradgradcheck
from gradwire.autograd.variable import Variable

__all__ = [
    "Function",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "enforce_grad_layout_policy",
    "set_multithreading_enabled",
]

__getattr__ = names_of_paths(__name__)
