"""Ops take the dtypes that PyTorch takes, and make of them what PyTorch makes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests.parity import sweep
from tests.parity.harness import Case
from tests.parity.test_ops import CASES

_HALF = ("float16", "bfloat16")
_COMPLEX = ("complex64", "complex128")
_WHOLE = ("uint8", "int8", "int16", "int32", "int64")
# What differs, by op, dtypes and the kind of the difference, each with the reason.
KNOWN: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}


def _known(names: str, kind: str, dtypes: tuple[str, ...], reason: str) -> None:
    KNOWN.update({(name, kind): (dtypes, reason) for name in names.split()})


_known(
    "special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1", "value", ("float64",),
    "PyTorch's rational functions have about seven digits",
)  # fmt: skip
_KERNEL = "PyTorch's processors lack the kernel that its GPUs have; the numbers are right"
_known("avg_pool3d ctc_loss lp_pool3d multi_margin_loss multilabel_margin_loss pdist", "answers", _HALF, _KERNEL)
_known("local_response_norm", "answers", _HALF, _KERNEL)
_known("special.i1 special.i1e pdist", "gradient-answers", _HALF, _KERNEL)
_known("zero", "answers", _COMPLEX, "the in-place form, which is what is called, takes them in PyTorch, too")
_EMPTY = "PyTorch's kernel does not run where there is nothing to compute"
_known("mm mv bmm einsum linear trapezoid", "refuses", ("bool",), _EMPTY)
_known("cdist", "refuses", _HALF, _EMPTY)
_TIES = "which of several equal elements is chosen is not specified"
_known("topk kthvalue median", "value", (*_WHOLE, *_HALF), _TIES)
_OVERFLOW = "PyTorch's half types overflow on the way; here they are computed in float32"
_known("matrix_exp linalg.matrix_exp", "value", _HALF, _OVERFLOW)
_known("matrix_exp linalg.matrix_exp", "gradient", _HALF, _OVERFLOW)
_known("istft", "value", (*_HALF, "float32"), "the squares of a window of half precision are added up in the signal's")
_known("complex view_as_complex", "refuses", ("float16",), "there is no complex32")
_known("mul", "value", ("float16",), "there is no complex32")
_ROUNDED = "rounded after other steps than PyTorch's"
_known("multi_head_attention_forward", "value", _HALF, _ROUNDED)
_known("grid_sample", "gradient", _HALF, "positions are found in float32, in PyTorch in bfloat16")
_known("grid_sample", "value", _HALF, "positions are found in float32, in PyTorch in bfloat16")
_known("linalg.pinv", "answers", ("float32", "float64"), "a tolerance that requires grad is refused by backward")
_known("pow", "value", _COMPLEX, "PyTorch has nan for a number 0 to the power of a complex 0, 1 for a tensor 0")
_known("pow", "gradient", ("uint8",), "the same of the slope")
_known("pow", "gradient-answers", ("bool",), "PyTorch's formula subtracts 1 from a bool")
_ANY = sweep.DTYPES
_known("dist scatter linalg.cond", "gradient-answers", _ANY, "PyTorch's formula fails for these shapes or orders")
_known("cummax cummin", "gradient-refuses", _ANY, "a dim that is not there, of nothing; PyTorch does not look at it")
_known("linalg.vector_norm", "gradient", _ANY, "of order 0 it is constant: zeros here, None in PyTorch")
_known("geqrf", "answers", _COMPLEX, "PyTorch refuses complex tensors that require grad before, not in backward")
_known("linalg.det", "gradient", _ANY, "of a singular matrix it is the adjugate's here, zeros in PyTorch")


def test_known_differences_have_reasons() -> None:
    """Ops that are gone are no excuse."""
    assert {name for name, _ in KNOWN} <= {made.op for made in CASES}
    assert all(reason for _, reason in KNOWN.values())


NAMES = sweep.names(CASES)
TABLE: dict[str, str] = json.loads(sweep.TABLE.read_text())


def test_the_table_of_what_pytorch_takes_is_of_these_cases() -> None:
    swept = {f"{name} {number}" for name, made in zip(NAMES, CASES, strict=True) for number, _ in sweep.calls(made)}
    assert swept == TABLE.keys(), "tests/parity/accepted.json is of other tables: run python -m tests.parity.sweep"


@pytest.mark.parametrize(("name", "made"), list(zip(NAMES, CASES, strict=True)), ids=map(str, CASES))
def test_op_takes_and_refuses_dtypes_as_pytorch_does(name: str, made: Case) -> None:
    """In every dtype: acceptance by the committed table; dtype, value, whether gradients flow, and the gradient beside
    PyTorch, where it is installed.
    """
    found = []
    for number, dtype in sweep.calls(made):
        call = sweep.Call(made, made.samples[number], dtype)
        mine = sweep.ours(call)
        taken = TABLE[f"{name} {number}"][sweep.DTYPES.index(dtype)]
        differences = []
        if taken != "ny"[mine.error is None]:
            differences.append("answers: PyTorch does not" if mine.error is None else f"refuses: {mine.error}")
        if sweep.torch is not None:
            differences.append(sweep.difference(call, mine))
        for what in differences:
            allowed, _ = KNOWN.get((made.op, what.partition(":")[0]), ((), ""))
            if what and dtype not in allowed:
                found.append(f"{dtype}, sample {number} {made.samples[number]}: {what}")
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
