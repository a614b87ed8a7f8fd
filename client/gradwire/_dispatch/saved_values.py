"""What a node saves for backward: PyTorch detaches it, which modes see.

Results are detached behind the op. A checkpoint detaches what it computes again: arguments, too, before the op. Where
the last value that it needs is an argument, the op itself is not computed in PyTorch, and modes do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.modes import GRAD_ENABLED
from gradwire._functions import saved_tensor_hooks
from gradwire._graph.hook_runner import IN_CHECKPOINT, LAST_AGAIN
from gradwire._proxy.handle import Handle

# By op, or overload: which of the results are saved, in the order of saving.
_SAVED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["_linalg_eigh", "linalg_qr"], (0, 1)),
    "_linalg_svd": (1, 0, 2),
    "native_group_norm": (1, 2),
    **dict.fromkeys(
        [
            "_cdist_forward",
            "_linalg_det",
            "_linalg_solve_ex",
            "_log_softmax",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_softmax",
            "amax",
            "amin",
            "cumprod",
            "exp",
            "exp2",
            "expm1",
            "linalg_cholesky_ex",
            "linalg_inv_ex",
            "linalg_vector_norm",
            "logsumexp",
            "max.default",
            "median.default",
            "min.default",
            "pow.Scalar",
            "pow.Tensor_Tensor",
            "prod",
            "reciprocal",
            "relu",
            "rsqrt",
            "sigmoid",
            "sqrt",
            "std",
            "std_mean",
            "tan",
            "tanh",
        ],
        (0,),
    ),
}

# Ops and overloads whose nodes save their first argument.
_SAVES_SELF = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cos",
        "cosh",
        "digamma",
        "erf",
        "erfc",
        "gelu",
        "hardswish",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "mish",
        "pow.Tensor_Scalar",
        "silu",
        "sin",
        "sinc",
        "sinh",
        "softplus",
    ]
)
# By op or overload: the two factors. The gradient of one needs the other.
_FACTORS = {"addmm": (1, 2), "bmm": (0, 1), "mm": (0, 1), "mul.Tensor": (0, 1)}
# Ops of gradwire that PyTorch makes of several, and the last of these that saves.
_ENDS_WITH = {"linear": ("addmm", "mm"), "matmul": ("bmm", "mm")}


def saved_arguments(name: str, overload: str, args: Sequence[Any]) -> list[Any]:
    """The arguments that the node of an op saves, for a checkpoint that is computed again."""
    if LAST_AGAIN.get() is None or not GRAD_ENABLED.get():
        return []
    if name in _SAVES_SELF or f"{name}.{overload}" in _SAVES_SELF:
        return [args[0]] if args[0]._spec.requires_grad else []
    places = _FACTORS.get(name) or _FACTORS.get(f"{name}.{overload}")
    if places is None:
        return []
    pair = [args[place] for place in places]
    if not all(isinstance(each, Handle) for each in pair):
        return []
    return [each for each, other in zip(pair, reversed(pair), strict=True) if other._spec.requires_grad]


def is_left_out(name: str, saved: Sequence[Any]) -> bool:
    """Whether a checkpoint that is computed again ends before this op, which saved these arguments."""
    last = LAST_AGAIN.get()
    return bool(last and saved) and (name == last or name in _ENDS_WITH.get(last or "", ()))


def saved_results(name: str, overload: str, made: Any) -> list[Any]:
    """The results that an op's node detaches to save them: none if hooks or a checkpoint's first call take them."""
    plain = name if name.startswith("_") else name.removesuffix("_")
    places = _SAVED.get(plain) or _SAVED.get(f"{plain}.{overload}")
    if places is None or saved_tensor_hooks.CURRENT.get() is not None:
        return []
    if IN_CHECKPOINT.get() and LAST_AGAIN.get() is None:
        return []
    results = [made] if isinstance(made, Handle) else list(made)
    if not any(each._spec.requires_grad for each in results):
        return []
    return [results[place] for place in places]
