"""Rules of losses. The dispatcher numbers the reductions: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten

Tensor = Any
_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def _number(reduction: str, size_average: Any, reduce: Any) -> int:
    """The reduction, also as PyTorch's old arguments give it."""
    if size_average is None and reduce is None:
        return _NUMBERS[reduction]
    if reduce is False:
        return 0
    return 2 if size_average is False else 1


def _reduced(made: Tensor, number: int) -> Any:
    return made if not number else aten("mean.default" if number == 1 else "sum.default", made)


def _simple(*extra: str) -> Callable[..., Any]:
    def rule(
        call: Any,
        input: Tensor,
        target: Tensor,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        **given: Any,
    ) -> Any:
        if weight is not None or input.shape != target.shape:
            return NotImplemented
        number = _number(reduction, size_average, reduce)
        values = [given[each] for each in extra if each in given]
        return aten(f"{call.op}.default", input, target, number, *values, compute=call.compute)

    return rule


def _l1_loss(
    call: Any,
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    if weight is not None:
        return NotImplemented
    error = aten("abs.default", aten("sub.Tensor", input, target))
    return _reduced(error, _number(reduction, size_average, reduce))


def _nll_loss(
    call: Any,
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    if input.ndim > 2:
        return NotImplemented
    number = _number(reduction, size_average, reduce)
    return aten("nll_loss_forward.default", input, target, weight, number, ignore_index)[0]


def _cross_entropy(
    call: Any,
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if label_smoothing or target.is_floating_point() or input.ndim > 2:
        return NotImplemented
    scores = aten("_log_softmax.default", input, input.ndim - 1, False)
    return _nll_loss(call, scores, target, weight, size_average, ignore_index, reduce, reduction)


def _of_bits(
    call: Any,
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    number = _number(reduction, size_average, reduce)
    extra = (pos_weight,) if call.op.endswith("logits") else ()
    return aten(f"{call.op}.default", input, target, weight, *extra, number, compute=call.compute)


def _kl_div(
    call: Any,
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    if log_target or reduction == "batchmean":
        return NotImplemented
    scaled = aten("mul.Tensor", target, input)
    made = aten("sub.Tensor", aten("xlogy.Tensor", target, target), scaled)
    return _reduced(made, _number(reduction, size_average, reduce))


RULES: dict[str, Callable[..., Any]] = {
    "binary_cross_entropy": _of_bits,
    "binary_cross_entropy_with_logits": _of_bits,
    "cross_entropy": _cross_entropy,
    "huber_loss": _simple("delta"),
    "kl_div": _kl_div,
    "l1_loss": _l1_loss,
    "mse_loss": _simple(),
    "nll_loss": _nll_loss,
    "smooth_l1_loss": _simple("beta"),
}
