"""Forms of creation: buffers, capsules, complex ends, layouts and outputs of other dtypes, beside PyTorch's."""

import array
import copy
import random
import warnings
from typing import Any

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, messages, refuse, warn

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:The given buffer is not writable"),
]

BUFFERS = {
    "bytes": bytes(range(8)),
    "bytearray": bytearray(range(8)),
    "floats": array.array("f", [1.5, -2.0, 3.0, 4.0]),
    "integers": array.array("q", [1, -2]),
    "view": memoryview(np.arange(4, dtype=np.float32)),
    "rows": memoryview(np.arange(6, dtype=np.int64).reshape(2, 3)),
}


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("options", [{}, {"dtype": "int16"}, {"dtype": "uint8", "copy": True}])
def test_asarray_takes_the_bytes_of_a_buffer(name, options):
    def made(t):
        given = {**options, "dtype": getattr(t, options.get("dtype", "float32"))}
        return t.asarray(BUFFERS[name], **given)

    agree(made)


@pytest.mark.parametrize("name", ["bytearray", "floats", "integers", "view"])
@pytest.mark.parametrize("function", ["tensor", "as_tensor"])
def test_a_sequence_of_python_numbers_is_one_of_elements(name, function):
    agree(lambda t: getattr(t, function)(BUFFERS[name]))
    agree(lambda t: getattr(t, function)([BUFFERS[name], BUFFERS[name]]))
    agree(lambda t: getattr(t, function)(BUFFERS[name], dtype=t.float64))


def test_buffers_with_gaps_or_of_bytes_are_refused():
    gaps = memoryview(np.arange(6, dtype=np.float32))[::2]
    agree(lambda t: t.tensor(gaps))
    refuse(lambda t: t.asarray(gaps), RuntimeError, "could not retrieve buffer from object")
    refuse(lambda t: t.tensor(b"ab"), TypeError, "invalid data type 'bytes'")
    refuse(lambda t: t.tensor(BUFFERS["rows"]), ValueError, "could not determine the shape of object type 'memoryview'")


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64", "uint8"])
def test_capsules_are_copied(dtype):
    given = RNG.standard_normal((2, 3)) * 5

    def made(t):
        x = t.tensor(given).to(getattr(t, dtype))
        return [
            t.asarray(t.utils.dlpack.to_dlpack(x), copy=True),
            t.asarray(t.utils.dlpack.to_dlpack(x), dtype=t.complex128),
            t.from_dlpack(t.utils.dlpack.to_dlpack(x)),
            t.utils.dlpack.from_dlpack(t.utils.dlpack.to_dlpack(x)),
        ]

    agree(made)


@pytest.mark.parametrize("ends", [(0, 1j), (1 + 2j, -3.5), (0.25, 0.75j)])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_numbers_between_complex_ends(ends, steps):
    def made(t):
        found = [
            t.linspace(*ends, steps),
            t.linspace(t.tensor(ends[0]), ends[1], steps),
            t.linspace(*ends, steps, out=t.empty(0, dtype=t.complex128)),
            t.linspace(*ends, steps, requires_grad=True),
        ]
        powers = [t.logspace(*ends, steps), t.logspace(*ends, steps, base=2.5, dtype=t.complex128)]
        # The last digits of powers differ, so their parts are compared as real numbers.
        return found, [t.view_as_real(each) for each in powers], [each.dtype for each in powers]

    agree(made)


def test_powers_between_complex_ends_are_leaves_and_have_the_outputs_digits():
    def made(t):
        out = t.logspace(0, 1j, 3, out=t.empty(0, dtype=t.complex128))
        leaf = t.logspace(0, 1j, 3, requires_grad=True)
        return t.view_as_real(out), leaf.is_leaf, leaf.requires_grad

    agree(made)
    for name in ("linspace", "logspace"):
        refuse(
            lambda t, name=name: getattr(t, name)(0, 1j, 3, dtype=t.complex64, out=t.ones(3, dtype=t.complex128)),
            RuntimeError,
            "does not match dtype of out parameter",
        )


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float64"])
@pytest.mark.parametrize("bounds", [(2, 5, 1.8), (0.5, 6.5, 1.25), (5, 0, -1.5)])
def test_a_range_has_the_dtype_that_is_asked_for(dtype, bounds):
    if bounds[1] == 0 and dtype == "uint8":
        bounds = (0, 5, 1.5)  # PyTorch converts no negative step
    agree(lambda t: t.range(*bounds, dtype=getattr(t, dtype)))
    agree(lambda t: t.range(*bounds, out=t.empty(0, dtype=getattr(t, dtype))))
    refuse(lambda t: t.range(1.9, 1.3, 1, dtype=getattr(t, dtype)), RuntimeError, "inconsistent with step sign")
    refuse(
        lambda t: t.range(*bounds, dtype=getattr(t, dtype), out=t.empty(0, dtype=t.int32)),
        RuntimeError,
        "does not match dtype of out parameter",
    )


def test_complex_ends_have_no_real_numbers_between_them():
    for name in ("linspace", "logspace"):
        refuse(
            lambda t, name=name: getattr(t, name)(0, 1j, 3, dtype=t.float32), RuntimeError, "can't be safely cast to"
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda t, layout: t.zeros(2, 3, layout=layout),
        lambda t, layout: t.full((2,), 3.0, layout=layout),
        lambda t, layout: t.randint(1, 2, (2,), layout=layout),
        lambda t, layout: t.arange(3, layout=layout),
        lambda t, layout: t.zeros_like(t.ones(2), layout=layout),
    ],
)
def test_the_strided_layout_may_be_named(call):
    agree(lambda t: call(t, t.strided))
    if call(torch, torch.strided).ndim == 2:
        refuse(lambda t: call(t, "strided"), TypeError, "must be torch.layout, not str")


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "float64"])
def test_draws_are_written_to_an_output_of_any_dtype(dtype):
    chances = RNG.random((5, 4))

    def drawn(t):
        t.manual_seed(3)
        return t.bernoulli(t.tensor(chances), out=t.full((5, 4), 2).to(getattr(t, dtype)))

    agree(drawn)
    refuse(
        lambda t: t.bernoulli(t.tensor(chances), out=t.ones(5, 4, dtype=t.complex64)),
        NotImplementedError,
        "not implemented for 'ComplexFloat'",
    )


@pytest.mark.parametrize("dtype", ["complex64", "float64", "float16", "float32"])
def test_a_modulus_is_written_to_complex_and_real_outputs(dtype):
    given = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)

    def written(t):
        out = t.abs(t.tensor(given, dtype=t.complex64), out=t.empty(4, dtype=getattr(t, dtype)))
        return t.view_as_real(out) if out.is_complex() else out

    agree(written)
    refuse(
        lambda t: t.abs(t.tensor(given), out=t.empty(4, dtype=t.int64)),
        RuntimeError,
        "can't be cast|Expected out tensor",
    )


def test_what_diff_joins_has_the_inputs_sizes():
    agree(lambda t: t.diff(t.arange(6.0).reshape(2, 3), dim=0, prepend=t.ones(1, 3)))
    refuse(lambda t: t.diff(t.ones(3, 2), prepend=t.ones(2, 2)), RuntimeError, "match that of input except along")
    refuse(lambda t: t.diff(t.ones(3, 2), dim=0, append=t.ones(2, 1)), RuntimeError, "match that of input except along")


def test_settings_of_cudnn_hold_in_a_block():
    def told(t):
        settings = t.backends.cudnn
        before = copy.copy(settings.benchmark)
        with settings.flags(enabled=False, benchmark=True, deterministic=True):
            within = settings.enabled, settings.benchmark, settings.deterministic, settings.benchmark_limit
        return within, settings.benchmark is before

    agree(told)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("bounds", "names"), [((-5, 1 << 9), ("to - 1",)), ((-(1 << 54), 1 << 55), ("from", "to - 1"))]
)
def test_bounds_that_a_dtype_does_not_hold_are_warned_of(dtype, bounds, names):
    def told(t):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                t.empty(3, dtype=getattr(t, dtype)).random_(*bounds)
            except RuntimeError as error:
                return str(error)
        return [str(each.message).split(" is out")[0] for each in found]

    agree(told)
    assert told(torch) in ([], [*names]) or "out of bounds" in told(torch)


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda t: t.zeros(2).uniform_(float("-inf"), 1), RuntimeError, "from is out of bounds for float"),
        (lambda t: t.zeros(2).uniform_(0, 1e300), RuntimeError, "to is out of bounds for float"),
        (lambda t: t.zeros(2).uniform_(-3e38, 3e38), RuntimeError, "to-from <= std::numeric_limits<Float>::max"),
        (lambda t: t.normal(0.0, -1.0, (2,)), RuntimeError, "normal expects std >= 0.0, but found std -1"),
        (lambda t: t.normal(t.ones(2), -t.ones(2)), RuntimeError, "normal expects all elements of std >= 0.0"),
        (lambda t: t.randperm(2050, dtype=t.float16), RuntimeError, "n cannot be greater than 2049 for Half type"),
        (lambda t: t.randperm(257, dtype=t.uint8), RuntimeError, "without overflow"),
        (lambda t: t.meshgrid(t.ones(2), t.ones(2).int(), indexing="ij"), RuntimeError, "to have the same dtype"),
    ],
)
def test_draws_and_grids_refuse_what_pytorchs_refuse(call, error, phrase):
    refuse(call, error, phrase)


@pytest.mark.parametrize(("count", "dtype"), [(2049, "float16"), (256, "uint8"), (128, "int8"), (300, "bfloat16")])
def test_permutations_are_as_long_as_the_dtype_allows(count, dtype):
    agree(lambda t: len(t.randperm(count, dtype=getattr(t, dtype)).float().unique()) <= count)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize(
    "write",
    [
        lambda t, out: t.range(1, 0, -1, out=out),
        lambda t, out: t.range(2.5, 7, 1.5, out=out),
        lambda t, out: t.fft.fftfreq(5, 0.5, out=out),
        lambda t, out: t.fft.rfftfreq(5, 0.5, out=out),
        lambda t, out: t.linspace(3, 1, 4, out=out),
        lambda t, out: t.logspace(0, 2, 3, out=out),
        lambda t, out: t.arange(5, 1, -2, out=out),
    ],
)
def test_outputs_of_sequences_hold_the_final_numbers(write):
    def written(t):
        out = t.tensor(())
        found = write(t, out)
        return out, found is out

    agree(written)


def test_what_takes_no_output_refuses_one():
    for call in (
        lambda t: t.hann_window(4, out=t.ones(4)),
        lambda t: t.kaiser_window(4, out=t.ones(4)),
        lambda t: t.signal.windows.cosine(4, out=t.ones(4)),
        lambda t: t.empty_strided((2,), (1,), out=t.ones(2)),
    ):
        refuse(call, TypeError, "unexpected keyword argument|invalid combination of arguments")


@pytest.mark.parametrize(
    ("dims", "size", "weight_size"),
    [(1, (2, 4, 7), (6, 2, 3)), (2, (2, 4, 7, 6), (6, 2, 3, 2)), (3, (1, 4, 5, 5, 4), (6, 2, 3, 2, 2))],
)
def test_gradients_of_convolutions_are_functions(dims, size, weight_size):
    given, weights = RNG.standard_normal(size), RNG.standard_normal(weight_size)
    how = {"stride": 2, "padding": 1, "groups": 2}

    def differentiated(t):
        x, weight = t.tensor(given, requires_grad=True), t.tensor(weights, requires_grad=True)
        made = getattr(t.nn.functional, f"conv{dims}d")(x, weight, None, **how)
        grad = t.ones_like(made).cumsum(-1).detach().requires_grad_()
        by_input = getattr(t.nn.grad, f"conv{dims}d_input")(size, weight, grad, **how)
        by_weight = getattr(t.nn.functional.grad, f"conv{dims}d_weight")(x, weight_size, grad, **how)
        (by_input.pow(2).sum() + by_weight.pow(2).sum()).backward()
        return by_input.detach(), by_weight.detach(), x.grad, weight.grad, grad.grad

    agree(differentiated)
    refuse(
        lambda t: t.nn.grad.conv1d_input((1, 2, 5), t.ones(3, 2, 2), t.ones(1, 3, 7)),
        RuntimeError,
        "Expected|expected|sizes|shape",
    )


ENDS = [(-5, 5, 7), (0, -3, 4), (255, 0, 10), (-255, 0, 3), (0, 300, 1), (1.9, -1.9, 6), (0, 2.5, 5)]
OUT_OF_RANGE = [(-256, 0, 2), (0, 256, 3), (1.5, -7.5, 5), (300, 0, 1)]
HALVES = ["float16", "bfloat16"]


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("ends", [*ENDS, *OUT_OF_RANGE], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", *HALVES])
def test_spaced_numbers_of_narrow_dtypes_are_pytorchs(name, ends, dtype):
    """PyTorch takes both ends into the dtype first, where negative whole numbers wrap around in uint8."""

    def made(t):
        return getattr(t, name)(*ends, base=2.0, dtype=getattr(t, dtype)) if name == "logspace" else made_linearly(t)

    def made_linearly(t):
        return t.linspace(*ends, dtype=getattr(t, dtype))

    try:
        made(torch)
    except (RuntimeError, NotImplementedError) as error:
        refuse(made, type(error), "without overflow|not implemented for 'Bool'")
    else:
        agree(made)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("steps", [2, 9, 60, 700])
def test_spaced_halves_have_pytorchs_last_digits(dtype, steps):
    start, end = RNG.normal(size=2) * 10
    agree(lambda t: t.linspace(start, end, steps, dtype=getattr(t, dtype)))


CONVOLUTIONS = [
    # dims, transposed, stride, padding, dilation, output padding, groups
    (1, False, [2], [1], [1], [0], 1),
    (2, False, [1], [0], [1], [0], 2),
    (2, True, [2, 1], [1, 0], [1, 1], [1, 0], 2),
    (3, False, [1, 2, 1], [1, 1, 0], [1, 1, 2], [0, 0, 0], 1),
    (1, True, [3], [1], [2], [2], 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False), (True, False, True)], ids=str)
def test_convolution_backward_is_atens(case, mask):
    dims, transposed, stride, padding, dilation, output_padding, groups = case
    given = RNG.standard_normal((2, 4, *[5] * dims))
    weights = RNG.standard_normal((4, 6 // groups, *[3] * dims) if transposed else (6, 4 // groups, *[3] * dims))
    how = (stride, padding, dilation, transposed, output_padding, groups)
    sizes = torch.convolution(torch.tensor(given), torch.tensor(weights), None, *how).shape
    gradients = RNG.standard_normal(tuple(sizes))

    def computed(t):
        x, weight, grad = (t.tensor(each, requires_grad=True) for each in (given, weights, gradients))
        made = t.ops.aten.convolution_backward(grad, x, weight, [6], *how, list(mask))
        sum(each.pow(2).sum() for each in made if each is not None).backward()
        results = (*made, x.grad, weight.grad, grad.grad)
        return [None if each is None else each.detach().round(decimals=6).add(0.0) for each in results]

    agree(computed)


def test_zeros_that_are_laid_out_as_another_tensor():
    def made(t):
        grounds = [t.ones(2, 3, 4).transpose(0, 1), t.ones(5)[1:4], t.ones(2, 2, dtype=t.float64), t.tensor(1.0)]
        found = []
        for each in grounds:
            for count in range(3):
                zeros = t.ops.aten._new_zeros_with_same_feature_meta(t.ones(3, 2, 4), each, self_num_batch_dims=count)
                found.append((zeros, zeros.stride(), zeros.storage_offset(), len(zeros.untyped_storage())))
        return found

    agree(made)


def test_cached_tensors_are_known_while_they_count():
    def told(t):
        one, other = t.ones(2), t.ones(2)
        found = [t._C._is_cached_tensor(one)]
        t._C._set_cached_tensors_enabled(True)
        try:
            t._C._add_cached_tensor(one)
            t._C._add_cached_tensor(one)
            found += [t._C._is_cached_tensor(each) for each in (one, other, one.detach())]
            t._C._remove_cached_tensor(one)
            found.append(t._C._is_cached_tensor(one))
        finally:
            t._C._set_cached_tensors_enabled(False)
        return found

    agree(told)
    refuse(lambda t: t._C._add_cached_tensor(t.ones(1)), RuntimeError, "not enabled")


def test_asarray_says_what_it_cannot_alias():
    refuse(lambda t: t.asarray(t.ones(2), dtype=t.float64, copy=False), ValueError, "'Float' into dtype 'Double'")
    refuse(lambda t: t.asarray([1.0, 2.0], copy=False), ValueError, "can't alias arbitrary sequence into a tensor")
    refuse(lambda t: t.asarray(np.float64(0.5), copy=False), RuntimeError, "can't alias NumPy scalars")
    agree(lambda t: t.asarray(t.ones(2), copy=False))


def test_lists_that_contain_themselves_are_refused():
    once, always = [0], []
    once += [once]
    always += [always]
    for made in (once, [[1, 2], once], [once, [1, 2]], [0, [once]]):
        refuse(lambda t, made=made: t.tensor(made), TypeError, "self-referential lists are incompatible")
    refuse(lambda t: t.tensor(always), ValueError, "too many dimensions 'list'")


def test_new_tensor_copies_a_tensor_without_its_history():
    def case(t):
        source = t.ones(2, dtype=t.float64, requires_grad=True) * 2
        like = t.zeros(1, dtype=t.int64)
        return like.new_tensor(source), t.ones(1).new_tensor(source, requires_grad=True), source.new_tensor(source)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(case)
    warn(lambda t: t.ones(1).new_tensor(t.ones(2)), "rather than tensor.new_tensor(sourceTensor)")


def test_roll_needs_shifts():
    refuse(lambda t: t.ones(2, 3).roll((), 0), RuntimeError, "`shifts` required")
    refuse(lambda t: t.ones(2, 3).roll((1, 2)), RuntimeError, "shifts and dimensions must align. shifts: 2, dims:0")


def test_meshgrid_warns_of_a_missing_indexing():
    for module in (torch, gradwire):
        module.set_warn_always(True)
        try:
            (text,) = messages(lambda t: t.meshgrid(t.ones(2), t.ones(7)), module)
            assert text.startswith("torch.meshgrid: in an upcoming release, it will be required to pass the indexing")
            assert messages(lambda t: t.meshgrid(t.ones(2), t.ones(7), indexing="ij"), module) == []
        finally:
            module.set_warn_always(False)


@pytest.mark.parametrize("seed", range(6))
def test_evenly_spaced_numbers_have_pytorchs_last_digits(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(8):
        first, last, count = draw.uniform(-50, 50), draw.uniform(-50, 50), draw.randint(2, 70)

        def case(torch: Any, first: float = first, last: float = last, count: int = count) -> Any:
            spaced = [torch.linspace(first, last, count, dtype=each) for each in (torch.float64, torch.int64)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `range` is deprecated
                return [*spaced, torch.linspace(first, last, count), torch.range(0, abs(last), abs(first) / 70 + 0.01)]

        for found, expected in zip(case(gradwire), case(torch), strict=True):
            assert found.tolist() == expected.tolist()


def test_dimensions_of_count_nonzero_and_squeeze_may_be_given_one_by_one() -> None:
    def case(torch: Any) -> Any:
        x = torch.arange(6.0).reshape(1, 3, 1, 2)
        return (
            [x.count_nonzero(1, 3), x.count_nonzero((1, 3)), x.count_nonzero(dim=1), x.count_nonzero()],
            [each.shape for each in (x.squeeze(0, 2), x.squeeze((0, 2)), x.squeeze(dim=0), x.squeeze(1), x.squeeze())],
        )

    agree(case)


@pytest.mark.parametrize("dims", [(0, 0), (2, -2), ((1, 0, 1),)])
def test_a_dimension_to_squeeze_is_not_named_twice(dims: tuple[Any, ...]) -> None:
    refuse(lambda t: t.ones(1, 3, 1, 2).squeeze(*dims).tolist(), RuntimeError, "appears multiple times in the list of")
