"""The source that the CUDA printer makes of a loop. tests/gpu/test_kernels.py compiles and runs it."""

from __future__ import annotations

import re

import pytest

from gradwire_engine.compile.eager import forms
from gradwire_engine.compile.fusion.cuda_printer import ENTRY, printed
from gradwire_engine.compile.fusion.form import SCALAR, is_flat

NAMES = sorted({*forms.FORMS, *forms._GPU_FORMS})


@pytest.mark.parametrize("name", NAMES)
def test_each_loop_of_an_op_is_printed_the_same_each_time_with_a_parameter_per_operand(name: str) -> None:
    loop, again = forms.gpu_loop_of(name, "f4"), forms.gpu_loop_of(name, "f4")
    assert loop is not None
    assert again is not None
    source = printed(loop)
    assert source == printed(again)
    (parameters,) = re.findall(rf"__global__ void {ENTRY}\(([^)]*)\)", source)
    assert re.findall(r"\ba(\d+)", parameters) == [str(place) for place in range(len(loop.operands))]
    # Threads wait for one another only where a row is reduced, and then outside of conditions.
    assert ("__syncthreads" in source) is not is_flat(loop)
    for place, operand in enumerate(loop.operands):
        assert (f"const float* __restrict__ a{place}" in parameters) is not (operand.written or operand.dtype != "f4")


def test_a_single_value_is_a_pointer_or_a_number() -> None:
    loop = forms.gpu_loop_of("softplus", "f8")
    assert loop is not None
    places = [place for place, operand in enumerate(loop.operands) if operand.index == SCALAR]
    assert "const double* __restrict__ a1" in printed(loop)
    assert "const double a1, const double a2" in printed(loop, numbers=places)


def test_constants_keep_their_bits() -> None:
    loop = forms.gpu_loop_of("relu", "f4")
    assert loop is not None
    assert "__int_as_float((int)0x0u)" in printed(loop)
