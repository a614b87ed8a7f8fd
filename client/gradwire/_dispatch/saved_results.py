"""Results that a node saves for backward: PyTorch detaches them, which modes see."""

from __future__ import annotations

from typing import Any

from gradwire._functions import saved_tensor_hooks
from gradwire._graph.hook_runner import IN_CHECKPOINT
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


def saved_results(name: str, overload: str, made: Any) -> list[Any]:
    """The results that the node of an op detaches to save them: none if hooks or a checkpoint take them."""
    plain = name if name.startswith("_") else name.removesuffix("_")
    places = _SAVED.get(plain) or _SAVED.get(f"{plain}.{overload}")
    if places is None or saved_tensor_hooks.CURRENT.get() is not None or IN_CHECKPOINT.get():
        return []
    results = [made] if isinstance(made, Handle) else list(made)
    if not any(each._spec.requires_grad for each in results):
        return []
    return [results[place] for place in places]
