"""Every sample of the parity tables in every dtype gives on a GPU what it gives on the CPU: values, dtypes, refusals.

On a GPU or on hostcupy only; what stands in for CuPy computes by NumPy, so its values show nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from tests.gpu.test_cuda import CASES
from tests.parity.harness import Case, Sample, _Call

if devices.cupy() is None:
    pytest.skip("needs CuPy and a CUDA GPU, or hostcupy", allow_module_level=True)


@pytest.fixture(autouse=True)
def gpu() -> None:
    """The device of this process: no stand-in."""


# Relative and absolute tolerance by the dtype of the sample, or of a result if that is coarser: a sample's own operands
# may be. The order of sums differs.
TOLERANCES = {
    "float64": (1e-8, 1e-10),
    "float32": (2e-4, 2e-5),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "complex128": (1e-8, 1e-10),
    "complex64": (2e-4, 2e-5),
}


@dataclasses.dataclass
class Answer:
    """What a call came to: results and gradients in host memory, or the refusal."""

    refused: tuple[str, str] | None = None
    arrays: list[np.ndarray[Any, Any]] = dataclasses.field(default_factory=list)


def answer(made: Case, sample: Sample, dtype: str, device: str) -> Answer:
    """The call on a device, and the backward of its results' sum."""
    call = _Call(made, sample, dtype)
    with activate(Context()):
        leaves = [
            engine.tensor(devices.to_device(each.array, device), each.requires_grad and made.order > 0)
            for each in call.ours()
        ]
        try:
            results = call.call_ours(leaves)
            roots = [each for each in results if each.requires_grad]
            if roots:
                engine.backward(roots, [engine.tensor(each.array * 0 + 1) for each in roots])
        except engine.EngineError as error:
            return Answer(refused=(str(error.reason), error.message))
        grads = [each.grad for each in leaves if each.grad is not None]
        return Answer(arrays=[devices.host(each.array) for each in (*results, *grads)])


def differences(ours: Answer, expected: Answer, dtype: str) -> list[str]:
    """What differs between two answers, each in a sentence."""
    if ours.refused is not None or expected.refused is not None:
        same = (ours.refused or ("",))[0] == (expected.refused or ("",))[0]
        return [] if same else [f"refused: {ours.refused} for {expected.refused}"]
    found = []
    for place, (one, other) in enumerate(zip(ours.arrays, expected.arrays, strict=True)):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            found.append(f"{place}: {one.dtype} {one.shape} for {other.dtype} {other.shape}")
            continue
        relative, absolute = max(TOLERANCES.get(each, (0.0, 0.0)) for each in (dtype, other.dtype.name))
        a, b = (each if each.dtype.kind in "biufc" else each.astype(np.float64) for each in (one, other))
        # A sum's rounding is relative to what is summed, not to what is left of it.
        largest = np.abs(b[np.isfinite(b)]).max(initial=1)
        if not np.allclose(a, b, rtol=relative, atol=absolute * largest, equal_nan=True):
            found.append(f"{place}: {a.reshape(-1)[:6].tolist()} for {b.reshape(-1)[:6].tolist()}")
    return found


# As in PyTorch, lstsq on a GPU has another driver than on the CPU: one that returns no rank.
ALIKE = [made for made in CASES if made.op != "linalg.lstsq"]


def dtypes_of(made: Case) -> list[str]:
    half = ("float16", "bfloat16") if made.half else ()
    return list(dict.fromkeys([*(dtype for sample in made.samples for dtype in sample.dtypes), *half]))


def samples_in(made: Case, dtype: str) -> list[Sample]:
    """The samples that the parity tests try in the dtype: a half type only in the first."""
    own = [sample for sample in made.samples if dtype in sample.dtypes]
    return own or [made.samples[0]]


@pytest.mark.parametrize(
    ("made", "dtype"),
    [pytest.param(made, dtype, id=f"{made}-{dtype}") for made in ALIKE for dtype in dtypes_of(made)],
)
def test_samples_on_the_gpu_are_those_of_the_cpu(made: Case, dtype: str) -> None:
    wrong = []
    for place, sample in enumerate(samples_in(made, dtype)):
        expected = answer(made, sample, dtype, "cpu")
        for each in differences(answer(made, sample, dtype, "cuda:0"), expected, dtype):
            wrong.append(f"sample {place}: {each}")  # noqa: PERF401
    assert not wrong
