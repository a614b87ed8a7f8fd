"""Every sample of the tables with its tensors in every dtype, on the engine and on PyTorch.

A table says in which dtypes an op is worth comparing. The sweep asks about all the others: whether both refuse or both
answer, whether dtype, values and `requires_grad` agree, and the gradient where there is one. Every floating tensor
requires grad, whatever the table says, so that a path that PyTorch refuses to differentiate is not dropped.

`python -m tests.parity.sweep` writes what PyTorch takes to accepted.json, for where there is no PyTorch.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import gradwire_engine as engine
from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError
from tests.parity import harness
from tests.parity.harness import Case, Sample, T, torch

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
SAMPLES = 2  # of each line of the table
TABLE = pathlib.Path(__file__).parent / "accepted.json"
_REFUSED = (EngineError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ArithmeticError)
_TOLERANCE = {
    "float64": 1e-8, "complex128": 1e-8, "float32": 2e-3, "complex64": 2e-3, "float16": 1e-2, "bfloat16": 6e-2
}  # fmt: skip
_HALF = () if torch is None else (torch.float16, torch.bfloat16)


def calls(made: Case) -> Iterator[tuple[int, str]]:
    """The samples of a case and the dtypes they are swept in."""
    for number, sample in enumerate(made.samples[:SAMPLES]):
        given: list[T] = []
        harness._map([sample.args, list(sample.kwargs.values())], lambda spec, given=given: given.append(spec) or spec)
        if any(spec.dtype is None for spec in given):
            for dtype in DTYPES:
                yield number, dtype


class Call(harness._Call):
    """A sample's call with the tensors that have no dtype of their own in this one."""

    def __init__(self, made: Case, sample: Sample, dtype: str) -> None:
        self.case = made
        self.specs, self.arrays = [], []
        self.rng = np.random.default_rng(zlib.crc32(f"{made.op} {sample} {dtype}".encode()))

        def note(spec: T) -> T:
            swept = dataclasses.replace(spec, dtype=spec.dtype or dtype, grad=True)
            self.specs.append(swept)
            self.arrays.append(self._values(swept))
            return swept

        args = harness._map(sample.args, note)
        kwargs = {name: harness._map(value, note) for name, value in sample.kwargs.items()}
        self.sample = dataclasses.replace(sample, args=args, kwargs=kwargs)

    def _values(self, spec: T) -> np.ndarray:
        dtype = dtypes.BY_NAME[spec.dtype or ""]
        whole = dtypes.category(dtype) == dtypes.INT
        if spec.values is None:
            low, high = (int(np.ceil(spec.low)), int(np.floor(spec.high))) if whole else (spec.low, spec.high)
            low = max(low, 0) if dtype.kind == "u" else low
            return dataclasses.replace(spec, low=low, high=max(high, low) + whole).build(self.rng, "float32")
        values = np.array(spec.values)
        if whole and values.dtype.kind == "f":
            values = np.nan_to_num(values, nan=0, posinf=3, neginf=0)
        return np.asarray((np.abs(values) if dtype.kind == "u" else values).astype(dtype).reshape(spec.shape))


@dataclasses.dataclass
class Outcome:
    """What one side made of a call: a refusal, or results, and gradients or the refusal of those."""

    error: Exception | None = None
    results: list[Any] = dataclasses.field(default_factory=list)
    gradients: Any = ()


def ours(call: Call) -> Outcome:
    """The engine's outcome."""
    leaves = call.ours()
    try:
        found = Outcome(results=[each for each in call.call_ours(leaves) if hasattr(each, "shape")])
    except _REFUSED as error:
        return Outcome(error)
    roots = [each for each in found.results if each.requires_grad]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if roots and wanted:
        seeds = [engine.tensor(np.ones(each.shape, each.dtype)) for each in roots]
        try:
            found.gradients, _ = engine.gradients(roots, wanted, seeds, allow_unused=True)
        except _REFUSED as error:
            found.gradients = error
    return found


def theirs(call: Call, wide: bool = False) -> Outcome:
    """PyTorch's outcome; if wide, of the same half values as float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves = call.theirs()
        if wide:
            leaves = [_widened(leaf) for leaf in leaves]
        try:
            found = Outcome(results=[each for each in call.call_theirs(leaves) if hasattr(each, "shape")])
        except _REFUSED as error:
            return Outcome(error)
        roots = [each for each in found.results if each.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        if roots and wanted:
            try:
                seeds = [torch.ones_like(each) for each in roots]
                found.gradients = torch.autograd.grad(roots, wanted, seeds, allow_unused=True)
            except _REFUSED as error:
                found.gradients = error
    return found


def _widened(leaf: Any) -> Any:
    return leaf.detach().float().requires_grad_(leaf.requires_grad) if leaf.dtype in _HALF else leaf


def difference(call: Call, mine: Outcome) -> str:
    """How the engine's outcome differs from PyTorch's: a word for the kind and what it is; nothing where they agree.

    How PyTorch rounds on the way in half precision depends on the processor: there float32's outcome will do as well.
    """
    its = theirs(call)
    found = _difference(call, mine, its)
    halves = any(leaf.dtype in _HALF for leaf in call.theirs())
    if halves and found.startswith(("value", "gradient: ")) and not isinstance(its.gradients, Exception):
        wide = theirs(call, wide=True)
        if wide.error is None and not isinstance(wide.gradients, Exception):
            results = [one.to(other.dtype) for one, other in zip(wide.results, its.results, strict=True)]
            pairs = zip(wide.gradients, its.gradients, strict=True)
            gradients = [None if one is None or other is None else one.to(other.dtype) for one, other in pairs]
            return _difference(call, mine, Outcome(results=results, gradients=gradients))
    return found


def _difference(call: Call, mine: Outcome, its: Outcome) -> str:
    if its.error is not None:
        return f"answers: PyTorch raises {its.error}" if mine.error is None else ""
    if mine.error is not None:
        return f"refuses: {mine.error}"
    for one, other in zip(mine.results, its.results, strict=True):
        if one.requires_grad != other.requires_grad:
            return f"flows: requires_grad is {one.requires_grad}"
        if found := _unequal(one, other, _tolerance(other)):
            return f"value: {found}"
    if isinstance(its.gradients, Exception):
        agree = isinstance(mine.gradients, Exception)
        return "" if agree else f"gradient-answers: PyTorch raises {its.gradients}"
    if isinstance(mine.gradients, Exception):
        return f"gradient-refuses: {mine.gradients}"
    coarsest = max(_TOLERANCE.get(spec.dtype or "", 0.0) for spec in call.specs)
    for one, other in zip(mine.gradients, its.gradients, strict=True):
        if (one is None) != (other is None):
            return f"gradient: {one}, PyTorch has {other}"
        if one is not None and (found := _unequal(one, other, 10 * coarsest)):
            return f"gradient: {found}"
    return ""


def _tolerance(theirs: Any) -> float:
    return _TOLERANCE.get(str(theirs.dtype)[6:], 0.0)


def _unequal(mine: engine.Tensor, its: Any, tolerance: float) -> str:
    if f"torch.{dtypes.name_of(mine.dtype)}" != str(its.dtype) or tuple(mine.shape) != tuple(its.shape):
        return f"{dtypes.name_of(mine.dtype)}{list(mine.shape)}, PyTorch has {its.dtype}{list(its.shape)}"
    one, other = harness.numbers(mine), harness.numbers(its)
    if np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True).all():
        return ""
    return f"{one.tolist()}, PyTorch has {other.tolist()}"


def names(cases: list[Case]) -> list[str]:
    """Per case its name in the table: the op, and which of the op's cases it is, from the op's first one on."""
    first: dict[str, int] = {}
    return [f"{made.op} {place - first.setdefault(made.op, place)}" for place, made in enumerate(cases)]


def accepted(cases: list[Case]) -> dict[str, str]:
    """Per case and sample a letter for each dtype: y where PyTorch makes something of the call, n where it refuses."""
    found: dict[str, str] = {}
    for name, made in zip(names(cases), cases, strict=True):
        for number, dtype in calls(made):
            letter = "ny"[theirs(Call(made, made.samples[number], dtype)).error is None]
            found[f"{name} {number}"] = found.get(f"{name} {number}", "") + letter
    return found


if __name__ == "__main__":
    from tests.parity.test_ops import CASES

    np.seterr(all="ignore")
    TABLE.write_text(json.dumps(accepted(CASES), indent=0) + "\n")
