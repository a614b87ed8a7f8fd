"""bilinear: a product of two inputs through a tensor of weights."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.linalg.contract import einsum
from gradwire_engine.ops.shape.shape import reshape


@composite(complex_grad=False)
def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Any:
    """input1 @ A @ input2 + bias, for each matrix A of the weight (torch.nn.functional.bilinear).

    input1: (..., i); input2: (..., j); weight: (o, i, j); bias: (o,). Raises EngineError: RUNTIME.
    """
    if input1.ndim != input2.ndim:
        raise EngineError(
            Reason.RUNTIME,
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}",
        )
    for dim, (m, n) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if m != n:
            raise EngineError(
                Reason.RUNTIME, f"bilinear(): input batch dimensions do not match at dim {dim}: got {m} and {n}"
            )
    for name, given, expected in (("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])):
        if given.shape[-1] != expected:
            raise EngineError(
                Reason.RUNTIME,
                f"bilinear(): {name} size does not match weight size: got {given.shape[-1]} but expected {expected}",
            )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise EngineError(
            Reason.RUNTIME,
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected {weight.shape[0]}",
        )
    lead = input1.shape[:-1]
    rows = math.prod(lead)
    first, second = (reshape(value, (rows, value.shape[-1])) for value in (input1, input2))
    made = einsum("ni,oij,nj->no", [first, weight, second])
    made = made if bias is None else made + bias
    return reshape(made, (*lead, weight.shape[0]))
