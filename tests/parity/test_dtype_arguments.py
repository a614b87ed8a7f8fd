"""A dtype argument is accepted or refused as in PyTorch: no imaginary part, range or precision is lost in silence."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

import gradwire_engine as engine  # noqa: E402
from gradwire_engine.core import dtypes  # noqa: E402
from tests.parity.harness import Case, torch_function  # noqa: E402

CALLS: dict[str, list[tuple[Any, ...]]] = {
    "sum": [(), (0,)],
    "nansum": [(), (0,)],
    "mean": [(), (0,)],
    "nanmean": [(), (0,)],
    "prod": [(), (0,)],
    "cumsum": [(0,)],
    "cumprod": [(0,)],
    "softmax": [(0,)],
    "log_softmax": [(0,)],
    "softmin": [(0,)],
    "norm": [("fro",), ("nuc",), (2, 0), (1, (0, 1))],
    "linalg.norm": [(), ("nuc",), (2, 0), (1, (0, 1))],
    "linalg.vector_norm": [(), (1, 0), (3,)],
    "linalg.matrix_norm": [(), ("nuc",), (2,), (1,)],
}
KINDS = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
# PyTorch's processors lack the kernel; the numbers here are right.
ACCEPTED_HERE = {("nansum", "complex64"), ("nansum", "complex128"), ("nanmean", "complex64"), ("nanmean", "complex128")}


def _outcome(function: Any, *arguments: Any, **named: Any) -> tuple[str | None, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return None, function(*arguments, **named)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, engine.EngineError) as error:
            return str(error) or "refused", None


def _ours(name: str, array: Any, *arguments: Any, **named: Any) -> engine.Tensor:
    found = engine.call(name, (engine.tensor(array), *arguments), named)
    assert isinstance(found, engine.Tensor)
    return found


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", KINDS)
def test_a_dtype_argument_answers_as_in_pytorch(name: str, given: str) -> None:
    theirs = torch_function(Case(name, []))
    values = torch.tensor([[1.0, 2.0], [3.0, 5.0]]).to(getattr(torch, given))
    shown = values.to(torch.float32).numpy().astype(dtypes.BY_NAME[given])
    for rest in CALLS[name]:
        for wanted in KINDS:
            expected, answer = _outcome(theirs, values, *rest, dtype=getattr(torch, wanted))
            refused, found = _outcome(_ours, name, shown, *rest, dtype=dtypes.BY_NAME[wanted])
            told = f"{name}({given}, {rest}, dtype={wanted}): PyTorch {expected or answer}, here {refused or found}"
            if expected is not None and refused is None and (name, wanted) in ACCEPTED_HERE:
                continue
            assert (refused is None) == (expected is None), told
            if expected is None:
                assert dtypes.name_of(found.dtype) == str(answer.dtype).removeprefix("torch."), told
                wide = torch.complex128 if answer.is_complex() else torch.float64
                numbers = found.array.astype("complex128" if answer.is_complex() else "float64")
                assert torch.allclose(torch.from_numpy(numbers), answer.to(wide), rtol=1e-2, atol=1e-3), told
