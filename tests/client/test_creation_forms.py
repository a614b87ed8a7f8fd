"""Forms of creation: buffers, capsules, complex ends, layouts and outputs of other dtypes, beside PyTorch's."""

import array
import copy

import numpy as np
import pytest

from tests.client.oracle import agree, refuse

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
