"""Loops printed as CUDA source: the values of the CPU's loops, ops by them, and which ops use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd import buffer_reuse
from gradwire_engine.compile.eager import forms
from gradwire_engine.compile.eager.gpu import GpuLoops
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion.cuda_launcher import Launcher
from gradwire_engine.compile.fusion.form import BITS, F4, Loop, is_flat
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.grouping import Index, groups_of
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.op.declaration import OPS
from gradwire_engine.ops.base import loops as op_loops
from gradwire_engine.ops.index import embedding_on_gpu
from gradwire_engine.ops.nn import attention, windows_on_gpu
from gradwire_engine.ops.nn.losses import on_gpu as losses_on_gpu
from gradwire_engine.ops.nn.norms import on_gpu as norms_on_gpu
from gradwire_engine.ops.nn.windows import Window
from gradwire_engine.ops.shape import join, join_on_gpu

Arrays = list["np.ndarray[Any, Any]"]
TOLERANCE = {"float32": 3e-6, "float64": 1e-14}


@pytest.fixture(autouse=True)
def context(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context on CuPy, with a GPU or hostcupy."""
    if devices.cupy() is None:
        pytest.skip("needs CuPy and a CUDA GPU, or hostcupy")
    monkeypatch.setattr(OPTIONS, "mode", "on")
    with activate(Context()), np.errstate(all="ignore"):
        yield


@pytest.fixture(autouse=True)
def gpu() -> None:
    """The device of this process: no stand-in, which compiles nothing."""


def same(one: Any, other: Any, units: float = 1.0) -> None:
    """Equal within rounding, by the largest finite value."""
    one, other = devices.host(one), devices.host(other)
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    largest = float(np.abs(other[np.isfinite(other)]).max(initial=1.0))
    tolerance = TOLERANCE[str(other.dtype)] * units
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * largest)


# The two printers.


def _operands(given: list[tuple[tuple[int, ...], Any]], rng: Any) -> Arrays:
    return [
        rng.integers(0, 2, shape).astype(dtype) if dtype == np.bool_ else rng.standard_normal(shape).astype(dtype)
        for shape, dtype in given
    ]


def _agree(loop: Loop, rows: int, length: int, operands: Arrays, repeats: dict[int, int]) -> None:
    """The loop by both printers on copies of these operands."""
    from tests.engine.compile.fusing import built

    kept = len(loop.kept())
    compiled = built(printed(loop))
    assert compiled.entry is not None
    on_cpu = [each.copy() for each in operands]
    op_loops.run(op_loops.Loop(compiled.entry, 1, kept, is_flat(loop)), rows, length, *on_cpu, repeats=repeats)
    launcher = Launcher(loop)
    # Single values: as numbers, and as arrays of the GPU.
    for as_numbers in (True, False):
        on_gpu = [
            each.copy()
            if as_numbers and each.ndim == 0 and not operand.written
            else devices.to_device(each.copy(), "cuda:0")
            for each, operand in zip(operands, loop.operands, strict=True)
        ]
        launcher.launch(rows, length, on_gpu, repeats)
        has_sums = any(value.op == "sum" for value in loop.values)
        for one, other, operand in zip(on_gpu, on_cpu, loop.operands, strict=True):
            if operand.written and has_sums:
                same(one, other, 20)
            elif operand.written:
                np.testing.assert_array_equal(devices.host(one), other)


@pytest.mark.parametrize("seed", range(6))
def test_fused_groups_of_random_programs_compute_by_cuda_what_they_compute_by_llvm(seed: int) -> None:
    pytest.importorskip("llvmlite")
    from tests.engine.compile import test_fusion
    from tests.engine.compile.fusing import traced

    program, arrays = test_fusion.random_program(seed)
    rng = np.random.default_rng(seed)
    for group in groups_of(traced(program, test_fusion.copies(arrays))):
        shaped = [(each.shape, each.dtype) if isinstance(each, Index) else ((), each[1]) for each in group.operands]
        repeats = {place: each.count for place, each in enumerate(group.operands) if isinstance(each, Index)}
        _agree(group.loop, group.rows, group.length, _operands(shaped, rng), repeats)


@pytest.mark.parametrize("pattern", ["where", "layer norm", "mean"])
def test_a_fused_pattern_computes_by_cuda_what_it_computes_by_llvm(pattern: str) -> None:
    pytest.importorskip("llvmlite")
    from tests.engine.compile import test_fusion
    from tests.engine.compile.fusing import traced

    program, shapes, _ = test_fusion.PATTERNS[pattern]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    groups = groups_of(traced(program, test_fusion.copies(arrays)))
    assert groups
    for group in groups:
        shaped = [(each.shape, each.dtype) if isinstance(each, Index) else ((), each[1]) for each in group.operands]
        repeats = {place: each.count for place, each in enumerate(group.operands) if isinstance(each, Index)}
        _agree(group.loop, group.rows, group.length, _operands(shaped, rng), repeats)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "relu", "softmax"])
def test_special_values_are_those_of_the_cpus_loop(name: str, dtype: str) -> None:
    pytest.importorskip("llvmlite")
    tiny = np.finfo(dtype).smallest_subnormal
    values = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, tiny, -tiny, 88.8, -103.9, 710.0, -745.0]
    array = np.asarray(values, dtype)
    loop = forms.FORMS[name].loop({"float32": "f4", "float64": "f8"}[dtype])
    _agree(loop, 1, len(array), [array, np.zeros_like(array)], {})
    for place in range(len(values)):  # as the largest of a row, if rows are reduced
        row = np.asarray([0.5, values[place], -2.0], dtype)
        _agree(loop, 1, 3, [row, np.zeros_like(row)], {})


@pytest.mark.parametrize(
    ("rows", "length", "inner"), [(3, 40, 1), (70, 9, 1), (5, 6 * 50, 50), (40, 2 * 7, 7), (1, 3000, 1)]
)
def test_rows_across_an_array_are_those_of_its_transpose(rows: int, length: int, inner: int) -> None:
    """Sums and maxima of each row of an array whose rows lie `inner` elements at a time."""
    loop = Loop()
    whole = loop.load(loop.operand(F4, "whole"))
    total = loop.reduce("sum", loop.cast(whole, "f8"))
    greatest = loop.reduce("max", whole)
    loop.store(loop.operand("f8", "column"), total)
    loop.store(loop.operand(F4, "column"), greatest)
    values = np.random.default_rng(0).standard_normal((length // inner, rows, inner)).astype(np.float32)
    given, sums, tops = (
        devices.to_device(each, "cuda:0") for each in (values, np.zeros(rows), np.zeros(rows, np.float32))
    )
    Launcher(loop).launch(rows, length, [given, sums, tops], None, inner)
    np.testing.assert_allclose(devices.host(sums), values.sum((0, 2), dtype=np.float64), rtol=1e-12)
    np.testing.assert_array_equal(devices.host(tops), values.max((0, 2)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_integers_wrap_as_those_of_the_cpus_loop(dtype: str) -> None:
    pytest.importorskip("llvmlite")
    integer = BITS[dtype]
    loop = Loop()
    bits = loop.bits(loop.load(loop.operand(dtype, "whole")), integer)
    made = bits
    for op, number in (("mul", 0x01234567), ("add", 0x7FFFFFFF), ("xor", 0x55555555), ("shl", 3), ("ashr", 5)):
        made = loop.binary(op, made, loop.const(number, integer))
    made = loop.binary("or", loop.binary("and", made, loop.const(0x3FFFFF, integer)), loop.const(1, integer))
    made = loop.binary("sub", made, bits)
    masked = loop.binary("and", made, loop.const(0x3FFFFFFF, integer))
    loop.store(loop.operand(dtype, "whole"), loop.bits(masked, dtype))
    values = np.random.default_rng(0).standard_normal(50).astype({"f4": "float32", "f8": "float64"}[dtype])
    _agree(loop, 1, 50, [values, np.zeros_like(values)], {})


# Ops.


@dataclass(frozen=True)
class _Case:
    """An op, shapes of the inputs that are differentiated, its other arguments, and the loops that it must use."""

    name: str
    loops: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ((5, 33),)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()  # names of the inputs behind the first
    dtypes: tuple[str, ...] = ("float32",)


_BOTH = ("float32", "float64")
_CHANNELS = ((4, 6, 5, 3), (4, 6, 9, 8), (7, 6))
_NORM = ("channel_norm_weight_bias", "channel_norm_backward_weight", "channel_dots", "row_sum")
CASES = [
    _Case("gelu", ("gelu", "gelu_backward")),
    _Case("gelu", ("gelu_tanh", "gelu_tanh_backward"), kwargs={"approximate": "tanh"}),
    *(
        _Case(name, (name, f"{name}_backward"))
        for name in ("silu", "sigmoid", "tanh", "relu", "softplus")
    ),
    _Case("erf", ("erf", "erf_backward")),
    _Case("exp", ("exp",)),
    _Case("softmax", ("softmax", "softmax_backward"), args=(-1,), dtypes=_BOTH),
    _Case("log_softmax", ("log_softmax", "log_softmax_backward"), ((300, 7),), args=(1,)),
    _Case("log_softmax", ("log_softmax",), ((2, 1000),), args=(1,)),
    _Case("layer_norm", ("layer_norm", "layer_norm_backward"), args=((33,),)),
    _Case(
        "layer_norm", ("layer_norm_weight_bias", "layer_norm_backward_weight", "column_dots"),
        ((2, 9, 33), (33,), (33,)), ((33,),), parameters=("weight", "bias"), dtypes=_BOTH,
    ),
    *(
        _Case("batch_norm", _NORM, (shape, (6,), (6,)), (None, None), {"training": True}, ("weight", "bias"))
        for shape in _CHANNELS
    ),
    _Case("batch_norm", ("channel_norm", "channel_norm_backward"), (_CHANNELS[0],), (None, None), {"training": True}),
    _Case("addcmul", ("addcmul",), ((5, 33),) * 3, kwargs={"value": -0.3}, parameters=("tensor1", "tensor2")),
    _Case("addcdiv", ("addcdiv",), ((5, 33),) * 3, kwargs={"value": 2}, parameters=("tensor1", "tensor2")),
    *(
        _Case(
            "binary_cross_entropy_with_logits", ("bce_with_logits",), ((3, 1500),),
            kwargs={"target": np.random.default_rng(9).random((3, 1500)), "reduction": reduction},
        )
        for reduction in ("mean", "sum")
    ),
]  # fmt: skip


def _computed(case: _Case, arrays: Arrays, device: str, loops: Any) -> list[Any]:
    """Result and gradients on a device."""
    with activate(replace(CURRENT.get(), loops=loops)):
        first, *others = [engine.tensor(devices.to_device(each.copy(), device), True) for each in arrays]
        kwargs = {
            name: devices.to_device(value.astype(arrays[0].dtype), device) if isinstance(value, np.ndarray) else value
            for name, value in case.kwargs.items()
        } | dict(zip(case.parameters, others, strict=True))
        kwargs = {name: engine.tensor(v) if hasattr(v, "shape") and not isinstance(v, engine.Tensor) else v
                  for name, v in kwargs.items()}  # fmt: skip
        result = engine.call(case.name, (first, *case.args), kwargs)
        weights = np.random.default_rng(1).standard_normal(result.array.shape).astype(arrays[0].dtype)
        engine.backward([result], [engine.tensor(devices.to_device(weights, device))])
        return [result.array, *(each.grad.array for each in (first, *others))]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in CASES for dtype in case.dtypes],
    ids=lambda each: getattr(each, "name", each),
)
def test_an_op_by_kernels_computes_what_numpy_does(case: _Case, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[str] = set()
    given = GpuLoops.find

    def noted(self: GpuLoops, name: str, dtype: str) -> Any:
        made = given(self, name, dtype)
        if made is not None:
            found.add(name)
        return made

    monkeypatch.setattr(GpuLoops, "find", noted)
    rng = np.random.default_rng(0)
    arrays = [(rng.random(shape) + 0.5 if case.name == "addcdiv" else rng.standard_normal(shape)).astype(dtype)
              for shape in case.shapes]  # fmt: skip
    made = _computed(case, arrays, "cuda:0", SessionLoops(lambda: True))
    again = _computed(case, arrays, "cuda:0", SessionLoops(lambda: True))
    expected = _computed(case, arrays, "cpu", None)
    for one, twin, other in zip(made, again, expected, strict=True):
        same(one, other, 30)
        np.testing.assert_array_equal(devices.host(one), devices.host(twin))
    assert found >= set(case.loops)


def test_an_update_in_place_is_one_kernel_and_the_same_value() -> None:
    rng = np.random.default_rng(0)
    values, grads = (rng.standard_normal((5, 33)).astype(np.float32) for _ in range(2))
    with activate(replace(CURRENT.get(), loops=SessionLoops(lambda: True), grad_enabled=False)):
        target, other = (engine.tensor(devices.to_device(each, "cuda:0")) for each in (values, grads))
        address = target.array.data.ptr
        OPS["add"].in_place((target, other, -0.05))
        np.testing.assert_array_equal(devices.host(target.array), values + grads * np.float32(-0.05))
        assert target.array.data.ptr == address
        OPS["add"].in_place((target, target, 2))  # the kernel's operands may not be the target
        np.testing.assert_allclose(devices.host(target.array), 3 * (values + grads * np.float32(-0.05)), rtol=1e-6)


def test_only_sessions_that_may_use_machine_code_use_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    array = devices.to_device(np.ones((2, 3), np.float32), "cuda:0")
    assert SessionLoops(lambda: True).on_gpu(array) is not None
    assert SessionLoops(lambda: False).on_gpu(array) is None  # its log may be replayed on another machine
    assert SessionLoops(lambda: True).on_gpu(np.ones(3)) is None
    monkeypatch.setattr(OPTIONS, "mode", "off")
    assert SessionLoops(lambda: True).on_gpu(array) is None


def test_verification_refuses_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    array = devices.to_device(np.ones((2, 3), np.float32), "cuda:0")
    loops = SessionLoops(lambda: True)
    with activate(replace(CURRENT.get(), loops=loops)):
        OPS["softmax"].compute((array, -1, None))
        on_gpu = loops.on_gpu(array)
        assert on_gpu is not None
        monkeypatch.setitem(on_gpu._loaded, ("softmax", "f"), on_gpu.find("log_softmax", "f"))
        with pytest.raises(engine.EngineError, match="the loop of softmax"):
            OPS["softmax"].compute((array, -1, None))


@pytest.mark.parametrize("shape", [(5, 7), (7,), (3, 4, 2, 5), (300, 3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nll_loss_by_kernels_is_numpys(shape: tuple[int, ...], weighted: bool, reduction: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape).astype(np.float32)
    classes = shape[min(1, len(shape) - 1)]
    target = rng.integers(0, classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if len(shape) > 1:
        target.reshape(-1)[::4] = -100
    weight = rng.random(classes).astype(np.float32) if weighted else None

    def computed(device: str, loops: Any) -> list[Any]:
        with activate(replace(CURRENT.get(), loops=loops)):
            x = engine.tensor(devices.to_device(values, device), True)
            given = [
                None if each is None else engine.tensor(devices.to_device(each, device)) for each in (target, weight)
            ]
            loss = engine.call("nll_loss", (x, *given), {"reduction": reduction})
            engine.backward([loss])
            return [loss.array, x.grad.array]

    made = computed("cuda:0", SessionLoops(lambda: True))
    for one, other in zip(made, computed("cpu", None), strict=True):
        same(one, other, 10)


def test_a_target_out_of_bounds_is_refused_by_name() -> None:
    x, target = (
        engine.tensor(devices.to_device(each, "cuda:0")) for each in (np.zeros((3, 4), np.float32), np.array([0, 9, 1]))
    )
    with (
        activate(replace(CURRENT.get(), loops=SessionLoops(lambda: True))),
        pytest.raises(engine.EngineError, match="Target 9 is out"),
    ):
        engine.call("nll_loss", (x, target))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_embedding_by_kernels_is_numpys(dtype: str, padding: int | None, index: Any) -> None:
    rng = np.random.default_rng(0)
    table, places = rng.standard_normal((7, 5)).astype(dtype), rng.integers(0, 7, (4, 9)).astype(index)
    weights = rng.standard_normal((4, 9, 5)).astype(dtype)

    def computed(device: str, loops: Any) -> list[Any]:
        with activate(replace(CURRENT.get(), loops=loops)):
            leaf, given, slope = (
                engine.tensor(devices.to_device(each.copy(), device), each is table)
                for each in (table, places, weights)
            )
            result = engine.call("embedding", (given, leaf, padding))
            engine.backward([result], [slope])
            return [result.array, leaf.grad.array]

    for one, other in zip(computed("cuda:0", SessionLoops(lambda: True)), computed("cpu", None), strict=True):
        same(one, other, 10)


@pytest.mark.parametrize("wrong", [7, -1])
def test_an_index_out_of_range_of_an_embedding_is_refused(wrong: int) -> None:
    table, places = (
        engine.tensor(devices.to_device(each, "cuda:0")) for each in (np.zeros((7, 5)), np.array([0, wrong, 1]))
    )
    with (
        activate(replace(CURRENT.get(), loops=SessionLoops(lambda: True))),
        pytest.raises(engine.EngineError, match="the table has 7 rows"),
    ):
        engine.call("embedding", (places, table))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("name", ["cat", "stack"])
def test_joins_by_a_kernel_are_numpys(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = []
    given = join.join
    monkeypatch.setattr(join, "join", lambda *args: joined.append(given(*args)) or joined[-1])
    rng = np.random.default_rng(0)
    lengths = {"cat": (1, 4, 2, 3), "stack": (4, 4, 4, 4)}[name]
    for axis in (0, 1, 2, -1):
        for count in (1, 2, 3, 4):
            shapes = [[3, 2, 5] for _ in range(count)]
            for shape, length in zip(shapes, lengths, strict=False):
                shape[axis] = length
            arrays = [(rng.standard_normal(shape) * 4).astype(dtype) for shape in shapes]
            moved = [engine.tensor(devices.to_device(each, "cuda:0")) for each in arrays]
            with activate(replace(CURRENT.get(), loops=SessionLoops(lambda: True))):
                made = engine.call(name, (moved, axis))
            expected = (np.concatenate if name == "cat" else np.stack)(arrays, axis)
            np.testing.assert_array_equal(devices.host(made.array), expected)
            assert (joined.pop() is not None) == (count > 1)


def test_joins_of_other_layouts_and_skipped_tensors_are_left_to_cupy() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    with activate(replace(CURRENT.get(), loops=SessionLoops(lambda: True))):
        one, empty = (engine.tensor(devices.to_device(each, "cuda:0")) for each in (whole, np.zeros(0, np.float32)))
        turned = engine.call("t", (engine.call("t", (one,)),))
        made = engine.call("cat", ([empty, engine.call("t", (turned,)), engine.call("t", (one,))], 1))
    np.testing.assert_array_equal(devices.host(made.array), np.concatenate([whole.T, whole.T], 1))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_attention_of_one_tensor_projects_it_by_one_product(
    biased: bool, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    shapes = [(5, 2, 8) if batched else (5, 8), (24, 8), (24,), (8, 8), (8,)]
    arrays = [rng.standard_normal(shape).astype(np.float64) for shape in shapes]
    projected = []
    given = attention._projected_at_once
    monkeypatch.setattr(attention, "_projected_at_once", lambda *args: projected.append(1) or given(*args))

    def computed(device: str, loops: Any) -> list[Any]:
        with activate(replace(CURRENT.get(), loops=loops)):
            leaves = [engine.tensor(devices.to_device(each.copy(), device), True) for each in arrays]
            x, weight, bias, out, out_bias = leaves
            call = (x, x, x, 8, 2, weight, bias if biased else None, None, None, False, 0.0, out, out_bias)
            result = engine.call("multi_head_attention_forward", call, {"need_weights": False})
            engine.backward([result], [engine.tensor(result.array * 0 + 1)])
            used = [each for each in leaves if biased or each is not bias]
            return [result.array, *(each.grad.array for each in used)]

    expected = computed("cpu", None)
    assert not projected
    for one, other in zip(computed("cuda:0", SessionLoops(lambda: True)), expected, strict=True):
        same(one, other, 100)
    assert projected


def test_a_leaf_takes_over_a_gradients_memory_only_if_no_other_array_shows_it() -> None:
    module: Any = devices.cupy()
    strided = module.lib.stride_tricks.as_strided
    views: list[Any] = [
        lambda array: None,
        lambda array: array[1:],
        lambda array: array.view(),
        lambda array: array.reshape(-1),
        lambda array: strided(array, (2,), (4,)),
    ]
    for reshaped in (False, True):
        for view in views:
            made = module.arange(12, dtype=np.float32).reshape(3, 4) + 1
            waiting = [made.reshape(4, 3) if reshaped else made]
            kept = view(made)
            address = made.data.ptr
            del made
            taken = buffer_reuse.own(waiting.pop())
            assert (taken.array.data.ptr == address) is (kept is None)
    held = [module.ones(3, np.float32)]
    twice = held[0]
    assert buffer_reuse.own(twice).array is not held[0]


def _by_both(name: str, arrays: Arrays, *args: Any, **kwargs: Any) -> None:
    """Check an op's result and gradients by kernels against NumPy's."""

    def computed(device: str, loops: Any) -> list[Any]:
        with activate(replace(CURRENT.get(), loops=loops)):
            leaves = [engine.tensor(devices.to_device(each, device), True) for each in arrays]
            made = engine.call(name, (*leaves, *args), kwargs)
            result = made[0] if isinstance(made, tuple | list) else made
            weights = np.random.default_rng(1).standard_normal(result.array.shape).astype(arrays[0].dtype)
            engine.backward([result], [engine.tensor(devices.to_device(weights, device))])
            return [result.array, *(each.grad.array for each in leaves)]

    for one, other in zip(computed("cuda:0", SessionLoops(lambda: True)), computed("cpu", None), strict=True):
        same(one, other, 30)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 1, 1, 1), (2, (0, 2), 1, 1), ((2, 3), 1, (1, 2), 2), (1, 0, 2, 4)],
)
def test_convolutions_by_kernels_are_numpys(stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    rng = np.random.default_rng(0)
    shapes = ((3, 4, 9, 8), (8, 4 // groups, 3, 2), (8,))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    _by_both("conv2d", arrays, stride, padding, dilation, groups)
    arrays[1:] = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6 // groups * groups, 3, 2), ())][:1]
    _by_both("conv_transpose2d", arrays[:2], stride=stride, padding=padding, dilation=dilation)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil_mode"),
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), ((3, 2), 1, (1, 0), 2, False), (2, 3, 0, 1, True)],
)
def test_max_pooling_by_kernels_is_numpys(
    kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np.float32)
    values[0, 0, :4] = -np.inf
    values[0, 1, 2:4, 3] = np.nan
    values[1] = np.round(values[1])  # equal maxima
    _by_both("max_pool2d", [values], kernel, stride, padding, dilation, ceil_mode)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4, 5), (3, 5, 6)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((4, 5), (3, 5, 6)),
        ((1, 4, 5), (7, 2, 5, 6)),
        ((2, 4, 5), (7, 2, 5, 6)),
        ((3, 0, 5), (3, 5, 2)),
    ],
)
def test_products_of_batches_read_operands_of_any_layout(shapes: Any) -> None:
    module: Any = devices.cupy()
    one, two = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes)
    expected = one @ two
    for first in (one, np.ascontiguousarray(one.swapaxes(-1, -2)).swapaxes(-1, -2), one[..., ::-1][..., ::-1]):
        for second in (two, np.ascontiguousarray(two.swapaxes(-1, -2)).swapaxes(-1, -2)):
            given = [
                devices.to_device(each.swapaxes(-1, -2), "cuda:0").swapaxes(-1, -2)
                if each.flags.c_contiguous
                else devices.to_device(each, "cuda:0")
                for each in (first, second)
            ]
            np.testing.assert_allclose(devices.host(module.matmul(*given)), expected, rtol=1e-5, atol=1e-5)
            doubled = module.concatenate([given[0], given[0]], -1)[..., : one.shape[-1]]
            np.testing.assert_allclose(devices.host(module.matmul(doubled, given[1])), expected, rtol=1e-5, atol=1e-5)


def test_what_the_kernels_do_not_fit_is_left_to_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: Any = SessionLoops(lambda: True)
    values, target, weight = (
        devices.to_device(each, "cuda:0") for each in (np.ones((3, 4), np.float32), np.zeros(3, np.int64), np.ones(5))
    )
    with activate(replace(CURRENT.get(), loops=loops)):
        assert losses_on_gpu.nll_loss(values, target, None, "sum", -100) is not None
        assert losses_on_gpu.nll_loss(values, target, None, "none", -100) is None
        assert losses_on_gpu.nll_loss(values, target, weight, "sum", -100) is None  # another dtype
        monkeypatch.setattr(losses_on_gpu, "_MOST_TARGETS", 2)
        assert losses_on_gpu.nll_loss(values, target, None, "sum", -100) is None
        assert norms_on_gpu.batch_norm(loops.on_gpu(values), values, values[0], None, 1e-5) is not None
        assert norms_on_gpu.batch_norm(loops.on_gpu(values), values, weight, None, 1e-5) is None
        window = Window((3, 4), (2, 2), (1, 1), (0, 0), (1, 1))
        assert join_on_gpu.join([values, values], (3, 8), 1) is not None
        assert join_on_gpu.join([values[0], weight], (9,), 0) is None
        assert embedding_on_gpu.lookup(target, values) is not None
        assert embedding_on_gpu.lookup(target.astype(np.int16), values) is None
        assert windows_on_gpu.fits(window, values)
        assert not windows_on_gpu.fits(window, values.T)
    assert not windows_on_gpu.fits(window, values)  # without loops
