"""Nodes that depend on a call's arguments: their names.

The other names are those of the engine's declarations (`gradwire_engine/ops/dtype_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.dtypes import float32
from gradwire._proxy.handle import Handle
from gradwire._tensor.shape_rules import item_kinds

_Named = dict[str, Any]
_Naming = Callable[[tuple[Any, ...], _Named], str]


def _numbered(name: str) -> _Naming:
    """Reductions: of all elements, or along dimensions."""

    def node(args: tuple[Any, ...], named: _Named) -> str:
        whole = (len(args) < 2 or args[1] is None) and named.get("dim") is None
        return f"{name}Backward{0 if whole else 1}"

    return node


def _largest(name: str) -> _Naming:
    """max and min: of all elements, along a dimension, or of two tensors."""

    def node(args: tuple[Any, ...], named: _Named) -> str:
        if len(args) > 1 and isinstance(args[1], Handle):
            return f"{name}imumBackward0"
        whole = (len(args) < 2 or args[1] is None) and named.get("dim") is None
        return f"{name}Backward{1 if whole else 0}"

    return node


def _of_number(name: str, with_number: int, with_tensor: int) -> _Naming:
    """Elementwise ops whose further operands are numbers, or tensors."""

    def node(args: tuple[Any, ...], named: _Named) -> str:
        tensors = any(isinstance(one, Handle) for one in args[1:])
        return f"{name}Backward{with_tensor if tensors else with_number}" if isinstance(args[0], Handle) else ""

    return node


def _linear(args: tuple[Any, ...], named: _Named) -> str:
    """linear of a matrix, or of a batch."""
    biased = len(args) > 2 and args[2] is not None
    rank = len(args[0]._spec.shape)
    if rank == 2:
        return "AddmmBackward0" if biased else "MmBackward0"
    return "ViewBackward0" if biased else "" if rank < 2 else "UnsafeViewBackward0"


def _matmul(args: tuple[Any, ...], named: _Named) -> str:
    """Products of vectors and matrices."""
    ranks = len(args[0]._spec.shape), len(args[1]._spec.shape)
    if ranks[0] == ranks[1] >= 3 or ranks == (3, 2):
        return "UnsafeViewBackward0"
    return {(2, 2): "MmBackward0", (2, 1): "MvBackward0", (1, 1): "DotBackward0"}.get(ranks, "")


def _squeeze(args: tuple[Any, ...], named: _Named) -> str:
    dim = args[1] if len(args) > 1 else None
    return f"SqueezeBackward{0 if dim is None else 1 if type(dim) is int else 2}"


def _getitem(args: tuple[Any, ...], named: _Named) -> str:
    """The last view that an index of integers, slices and None makes."""
    items = args[1].items
    kinds = item_kinds(args[0]._spec, args[1])
    shown = [item for item, kind in zip(items, kinds, strict=True) if item is not Ellipsis and kind != "whole"]
    if not shown:
        return ""
    last = shown[-1]
    return "UnsqueezeBackward0" if last is None else "SliceBackward0" if type(last) is slice else "SelectBackward0"


def _reshape(args: tuple[Any, ...], named: _Named) -> str:
    """A view with other sizes."""
    return "ReshapeAliasBackward0" if args[0]._spec.strides else "ViewBackward0"


def _unweighted(name: str) -> _Naming:
    """Losses of an input and a target, without weights."""

    def node(args: tuple[Any, ...], named: _Named) -> str:
        return name if sum(isinstance(each, Handle) for each in args) == 2 else ""

    return node


def _recurrent(args: tuple[Any, ...], named: _Named) -> str:
    """A layer's steps: stacked, or joined if the sequences are packed."""
    return "CatBackward0" if any(isinstance(each, (list, tuple)) and each for each in args) else "StackBackward0"


def _lstm(args: tuple[Any, ...], named: _Named) -> str:
    """An LSTM's steps: PyTorch computes those of float32 as one."""
    node = _recurrent(args, named)
    return "MkldnnRnnLayerBackward0" if node == "StackBackward0" and args[0]._spec.dtype is float32 else node


#: Functions of the arguments by the names of ops.
NODES: dict[str, _Naming] = {
    "binary_cross_entropy_with_logits": _unweighted("BinaryCrossEntropyWithLogitsBackward0"),
    "dropout": lambda args, named: "MulBackward0" if len(args) > 2 and args[2] is True else "",
    "clamp": _of_number("Clamp", 1, 0),
    "clamp_max": _of_number("ClampMax", 0, 1),
    "clamp_min": _of_number("ClampMin", 0, 1),
    "flatten": _reshape,
    "getitem": _getitem,
    "gru_layer": _recurrent,
    "linear": _linear,
    "lstm_layer": _lstm,
    "masked_fill": lambda args, named: "MaskedFillBackward0",
    "matmul": _matmul,
    "max": _largest("Max"),
    "mean": _numbered("Mean"),
    "min": _largest("Min"),
    "mse_loss": _unweighted("MseLossBackward0"),
    "pow": _of_number("Pow", 0, 1),
    "prod": _numbered("Prod"),
    "reshape": _reshape,
    "rnn_layer": _recurrent,
    "rsub": _of_number("Rsub", 1, 0),
    "squeeze": _squeeze,
    "sum": _numbered("Sum"),
}
