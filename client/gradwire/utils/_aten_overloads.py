"""The ops of ATen that PyTorch calls for one op of gradwire: what the policy of a selective checkpoint is asked about.

Each rule gives names of overloads in the order of PyTorch's calls. An op without a rule has the name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._dispatch.kernels import VIEWS as KERNEL_VIEWS
from gradwire._proxy.handle import Handle
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.indexing import Index

#: Overloads that are only views, so that there is nothing to keep.
VIEWS = KERNEL_VIEWS | {"_unsafe_view", "imag", "movedim", "narrow", "real", "squeeze_"}
_DRAWS = frozenset(
    [
        "alpha_dropout",
        "bernoulli",
        "binomial",
        "cauchy",
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "exponential",
        "feature_alpha_dropout",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "randperm",
        "rrelu",
        "uniform",
    ]
)

_SAME = {
    "T": "permute.default",
    "avg_pool2d": "avg_pool2d.default",
    "broadcast_to": "expand.default",
    "chunk": "split.Tensor",
    "conv1d": "convolution.default",
    "conv2d": "convolution.default",
    "conv3d": "convolution.default",
    "dropout": "native_dropout.default",
    "flatten": "view.default",
    "layer_norm": "native_layer_norm.default",
    "log_softmax": "_log_softmax.default",
    "max_pool2d": "max_pool2d_with_indices.default",
    "group_norm": "native_group_norm.default",
    "batch_norm": "native_batch_norm.default",
    "norm": "linalg_vector_norm.default",
    "linalg.vector_norm": "linalg_vector_norm.default",
    "rsub": "rsub.Scalar",
    "select": "select.int",
    "softmax": "_softmax.default",
    "square": "pow.Tensor_Scalar",
    "std": "std.correction",
    "std_mean": "std_mean.correction",
    "to": "_to_copy.default",
    "transpose": "transpose.int",
    "unflatten": "view.default",
    "var": "var.correction",
    "var_mean": "var_mean.correction",
    "where": "where.self",
    **dict.fromkeys(["split", "squeeze", "squeeze_"], ""),
    **{name: f"{name}.Tensor" for name in ["add", "sub", "mul", "div", "remainder", "fmod", "floor_divide"]},
}
_COMPARING = frozenset(["eq", "ge", "gt", "le", "lt", "ne"])
_ALONG = {"sum": "dim_IntList", "mean": "dim", "prod": "dim_int", "median": "dim", "all": "dim", "any": "dim"}

_Arguments = Sequence[Any]


def overloads(op: str, args: _Arguments, made: Any) -> tuple[str, ...]:
    """Names like "mul.Tensor" of what PyTorch calls for an op; empty for nothing that it would call."""
    rule = _RULES.get(op)
    if rule is not None:
        return rule(args, made)
    if writes_in_place(op) and op not in _SAME:
        name, _, form = _one(op[:-1], args).partition(".")
        return (f"{name}_.{form}",)
    return (_one(op, args),)


def _one(op: str, args: _Arguments) -> str:
    """The overload of an op that PyTorch computes at once."""
    other = args[1] if len(args) > 1 else None
    if op in _COMPARING:
        return f"{op}.{'Tensor' if isinstance(other, Handle) else 'Scalar'}"
    if op == "rsub" and isinstance(other, Handle):
        return "rsub.Tensor"
    if op in ("max", "min"):
        return f"{op}.{'default' if other is None else 'dim'}"
    if op in _ALONG:
        return f"{op}.{'default' if other is None else _ALONG[op]}"
    if op == "pow":
        first = "Tensor" if isinstance(args[0], Handle) else "Scalar"
        return (
            "pow.Scalar" if first == "Scalar" else f"pow.Tensor_{'Tensor' if isinstance(other, Handle) else 'Scalar'}"
        )
    if op == "masked_fill":
        return f"masked_fill.{'Tensor' if isinstance(args[2], Handle) else 'Scalar'}"
    if op == "split":
        return "split.Tensor" if type(other) is int else "split_with_sizes.default"
    if op in ("squeeze", "squeeze_"):
        return f"{op}.{'default' if other is None else 'dim' if type(other) is int else 'dims'}"
    if op == "lerp":
        return f"lerp.{'Tensor' if isinstance(args[2], Handle) else 'Scalar'}"
    return _SAME.get(op) or f"{op.replace('.', '_')}.default"


def _linear(args: _Arguments, made: Any) -> tuple[str, ...]:
    biased, flat = len(args) > 2 and args[2] is not None, args[0].ndim == 2
    product = "addmm.default" if biased else "mm.default"
    if flat:
        return "t.default", product
    if biased:
        return "view.default", "t.default", product, "view.default"
    return "t.default", "view.default", product, "_unsafe_view.default"


def _matmul(args: _Arguments, made: Any) -> tuple[str, ...]:
    form = (args[0].ndim, args[1].ndim)
    if max(form) <= 2:
        short = {(1, 1): "dot.default", (2, 1): "mv.default", (2, 2): "mm.default"}.get(form)
        return (short,) if short else ("unsqueeze.default", "mm.default", "squeeze_.dim")
    if form[0] > 2 and form[1] <= 2:
        return "view.default", "mv.default" if form[1] == 1 else "mm.default", "_unsafe_view.default"
    views = ("expand.default", "view.default") * 2
    return *views, "bmm.default", "_unsafe_view.default"


def _reshape(args: _Arguments, made: Any) -> tuple[str, ...]:
    views = made.__dict__.get("_view") is not None or args[0].is_contiguous()
    return ("view.default",) if views else ("clone.default", "_unsafe_view.default")


def _getitem(args: _Arguments, made: Any) -> tuple[str, ...]:
    index = args[1]
    items = index.items if isinstance(index, Index) else ()
    names: list[str] = []
    for item in items:
        if item is None or type(item) is bool:
            names.append("unsqueeze.default")
        elif type(item) is int:
            names.append("select.int")
        elif item is not Ellipsis and not isinstance(item, (Handle, list)) and _limits(item):
            names.append("slice.Tensor")
    if any(isinstance(item, (Handle, list)) for item in items):
        names.append("index.Tensor")
    return tuple(names)


def _setitem(args: _Arguments, made: Any) -> tuple[str, ...]:
    names = _getitem(args, made)
    return (*names[:-1], "index_put_.default") if names[-1:] == ("index.Tensor",) else (*names, "copy_.default")


def _limits(item: Any) -> bool:
    """Whether a slice is not that of all elements."""
    return any(getattr(item, name, None) is not None for name in ("start", "stop", "step"))


def _cross_entropy(args: _Arguments, made: Any) -> tuple[str, ...]:
    return "_log_softmax.default", "nll_loss_forward.default"


def _attention(args: _Arguments, made: Any) -> tuple[str, ...]:
    if args[0].ndim != 4:
        return ("scaled_dot_product_attention.default",)
    form = "flash_attention_for_cpu" if args[0].device.type == "cpu" else "efficient_attention"
    return (f"_scaled_dot_product_{form}.default",)


_RULES: dict[str, Callable[[_Arguments, Any], tuple[str, ...]]] = {
    "cross_entropy": _cross_entropy,
    "getitem": _getitem,
    "linear": _linear,
    "matmul": _matmul,
    "reshape": _reshape,
    "scaled_dot_product_attention": _attention,
    "setitem_": _setitem,
}


def draws(op: str, args: _Arguments) -> bool:
    """Whether an op draws random numbers."""
    if op == "scaled_dot_product_attention":
        return len(args) > 4 and args[4] > 0
    return op in _DRAWS


def to_keep(names: Sequence[str]) -> str | None:
    """Of what PyTorch calls for an op, the last that computes; None for views only."""
    computing = [each for each in names if each.partition(".")[0] not in VIEWS]
    return computing[-1] if computing else None
