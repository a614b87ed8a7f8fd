"""gradwire.array_api: every function of the standard agrees with NumPy's namespace, and gradients flow through."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradwire
import gradwire.array_api as xp
from tests.client.array_api_cases import CASES, Draw

pytestmark = pytest.mark.usefixtures("deferring")

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
CONSTANTS = "e inf nan newaxis pi"
TOLERANCES = {"float32": 1e-4, "complex64": 1e-4}


def plain(value):
    """A result as arrays of NumPy's, dtypes by name."""
    if isinstance(value, (gradwire.Tensor, np.ndarray, np.generic)):
        return np.asarray(value.numpy() if isinstance(value, gradwire.Tensor) else value)
    if isinstance(value, (gradwire.dtype, np.dtype)):
        return value.name
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return value


def assert_same(found, expected):
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert found.dtype.name == expected.dtype.name
        assert found.shape == expected.shape
        tolerance = TOLERANCES.get(expected.dtype.name, 1e-9)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        assert found == expected


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32))
def test_function_answers_as_numpys_namespace(name, seed):
    case = CASES[name]
    with np.errstate(all="ignore"):
        expected = plain(case(np, Draw(np, seed)))
    assert_same(plain(case(xp, Draw(xp, seed))), expected)


def test_every_function_has_its_case():
    names = {one for one in xp.__all__ if isinstance(getattr(xp, one), types.FunctionType) and not one.startswith("__")}
    for part in (xp.linalg, xp.fft):
        names |= {f"{part.__name__.rsplit('.', 1)[1]}.{one}" for one in part.__all__}
    assert names | {"finfo", "iinfo"} == set(CASES)
    assert {*DTYPES.split(), *CONSTANTS.split(), "__array_namespace_info__", "__array_api_version__"} <= set(xp.__all__)


# Array and Tensor.


def test_functions_take_tensors_and_give_arrays_of_the_same_graph():
    x = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert x.__array_namespace__() is xp
    y = xp.sum(xp.sin(x) * xp.asarray(x))
    assert isinstance(y, xp.Array)
    y.backward()
    expected = np.sin(x.detach().numpy()) + x.detach().numpy() * np.cos(x.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def test_tensor_that_a_function_would_answer_itself_stays_a_tensor():
    x = gradwire.tensor([1, 2])
    for made in (xp.asarray(x), xp.real(x), xp.floor(x), xp.squeeze(x, ()), xp.astype(x, x.dtype, copy=False)):
        assert isinstance(made, xp.Array)
        assert made is not x
    assert type(x) is gradwire.Tensor
    assert x.size() == (2,)
    seen = xp.asarray(x)
    seen[0] = 7
    assert x.tolist() == [7, 2]


def test_tensors_keep_pytorchs_semantics_and_arrays_have_the_standards():
    plain_tensor, weak = gradwire.ones(3), gradwire.tensor(1.0, dtype=gradwire.float64)
    assert (plain_tensor + weak).dtype is gradwire.float32
    assert (xp.asarray(plain_tensor) + xp.asarray(weak)).dtype is xp.float64
    assert xp.add(plain_tensor, weak).dtype is xp.float64
    with pytest.raises(ValueError, match="greater than zero"):
        plain_tensor[::-1]
    array = xp.asarray([[1, 2, 3], [4, 5, 6]])
    assert (array.size, array.ndim, array.shape) == (6, 2, (2, 3))
    assert array.T.tolist() == [[1, 4], [2, 5], [3, 6]]
    with pytest.raises(ValueError, match="two axes"):
        xp.zeros((2, 2, 2)).T  # noqa: B018
    with pytest.raises(TypeError, match=r"gradwire\.array_api\.asarray"):
        xp.Array([1])
    with pytest.raises(ValueError, match=r"2025\.12"):
        plain_tensor.__array_namespace__(api_version="1999.1")


KEYS = [
    np.s_[::-1],
    np.s_[1, ::-2],
    np.s_[..., 3:0:-1],
    np.s_[None, ::-1, :, -1],
    np.s_[-1:-10:-1, 0:0:-1],
    np.s_[::-1, np.array([2, 0])],
    np.s_[np.array([[True, False, True, True, False], [False] * 5, [True] * 5])],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices_go_backward_to_read_and_to_write(key):
    values = np.arange(60.0).reshape(3, 5, 4)
    ours = (
        tuple(xp.asarray(one) if isinstance(one, np.ndarray) else one for one in key) if isinstance(key, tuple) else key
    )
    ours = xp.asarray(ours) if isinstance(ours, np.ndarray) else ours
    x = xp.asarray(values)
    np.testing.assert_array_equal(x[ours].numpy(), values[key])
    put = -np.arange(values[key].size).reshape(values[key].shape) - 1.0
    x[ours] = xp.asarray(put)
    values[key] = put
    np.testing.assert_array_equal(x.numpy(), values)


def test_gradient_of_a_backward_slice_arrives_in_its_place():
    x = xp.asarray(gradwire.arange(4.0).requires_grad_())
    leaf = gradwire.arange(4.0).requires_grad_()
    xp.sum(xp.asarray(leaf)[::-1] * xp.asarray([1.0, 2.0, 3.0, 4.0])).backward()
    assert leaf.grad.tolist() == [4.0, 3.0, 2.0, 1.0]
    assert x[3:1:-1].tolist() == [3.0, 2.0]


def test_unsigned_arrays_are_positions_and_empty_masks_choose_nothing():
    x = xp.asarray([10, 20, 30])
    assert x[xp.asarray([2, 0], dtype=xp.uint8)].tolist() == [30, 10]
    assert x[xp.zeros((0,), dtype=xp.bool)].shape == (0,)
    with pytest.raises(IndexError):
        x[xp.zeros((2,), dtype=xp.bool)]


def test_large_unsigned_integers_are_exact():
    big = (1 << 64) - 1
    x = xp.full((2,), big, dtype=xp.uint64)
    assert x.tolist() == [big, big]
    assert (x - 1).tolist() == [big - 1, big - 1]
    assert (x == big).tolist() == [True, True]
    assert int(xp.sum(xp.asarray([big - 1, 1], dtype=xp.uint64))) == big
    with pytest.raises(OverflowError):
        xp.full((2,), 1 << 64, dtype=xp.uint64)
    with pytest.raises(RuntimeError, match="UInt64"):
        x + xp.asarray([1, 2])


INF = float("inf")


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("floor_divide", (INF, 2.0), INF),
        ("floor_divide", (1.0, -INF), -0.0),
        ("remainder", (-0.0, 2.0), 0.0),
        ("remainder", (0.0, -2.0), -0.0),
        ("sign", (float("nan"),), float("nan")),
        ("expm1", (complex(-INF, INF),), -1 + 0j),
        ("tanh", (complex(INF, 2.0),), 1 + 0j),
        ("log", (complex(-0.0, 0.0),), complex(-INF, np.pi)),
        ("log", (complex(0.0, 0.0),), complex(-INF, 0.0)),
    ],
)
def test_special_values_are_the_standards(function, arguments, expected):
    kind = xp.complex128 if isinstance(expected, complex) else xp.float64
    found = getattr(xp, function)(*[xp.full((2,), one, dtype=kind) for one in arguments])
    for one in found.tolist():
        assert repr(complex(one)) == repr(complex(expected))


def test_remainder_and_floor_division_in_place_change_the_array_itself():
    x = xp.asarray([7.0, -7.0])
    same = x
    x %= 4
    x //= 2.0
    assert x is same
    assert x.tolist() == [1.0, 0.0]


def test_functions_refuse_by_name_what_they_do_not_take():
    x = xp.asarray([1.0, 2.0])
    for refused, error, phrase in [
        (lambda: xp.add(1, 2), TypeError, "an array among the two"),
        (lambda: xp.add(x, "a"), TypeError, "Python number"),
        (lambda: xp.squeeze(x, 0), ValueError, "axis 0 has size 2"),
        (lambda: xp.sum(x, axis=3), IndexError, "axis 3 is out of range"),
        (lambda: xp.sum(x, axis=(0, 0)), ValueError, "twice"),
        (lambda: xp.astype(xp.asarray([1j]), xp.float64), TypeError, "imaginary"),
        (lambda: xp.isdtype(xp.bool, "round"), ValueError, "kinds"),
        (lambda: xp.asarray([1], copy=False), ValueError, "copy"),
        (lambda: xp.nonzero(xp.asarray(1)), ValueError, "one axis"),
        (lambda: xp.take(xp.zeros((2, 2)), xp.asarray([0])), ValueError, "axis is needed"),
        (lambda: xp.linalg.outer(xp.zeros((2, 2)), x), ValueError, "two vectors"),
        (lambda: xp.broadcast_shapes((2,), (3,)), ValueError, "cannot be broadcast"),
        (lambda: xp.arange(1, 2, 0), ValueError, "step"),
        (lambda: x.to_device("cpu", stream=1), ValueError, "stream"),
        (lambda: xp.asarray(object()), TypeError, "object"),
    ]:
        with pytest.raises(error, match=phrase):
            refused()


def test_what_the_namespace_says_of_itself():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] is xp.zeros(1).dtype
    assert info.default_dtypes()["integral"] is xp.asarray([1]).dtype
    assert set(info.dtypes()) == set(DTYPES.split())
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert xp.asarray(1.5, dtype=xp.float64, device=info.devices()[0]).to_device("cpu").device == info.default_device()


def test_a_loop_of_functions_waits_in_its_first_turn_only(monkeypatch):
    waited = []
    wait = gradwire.Session.wait
    monkeypatch.setattr(gradwire.Session, "wait", lambda *args, **named: waited.append(1) or wait(*args, **named))
    x, counts = xp.asarray([1.0, 2.0, 3.0]), []
    for _ in range(3):
        before = len(waited)
        x = xp.clip(xp.sin(x) * 2 + x[::-1] / xp.mean(xp.exp(x)), -4.0, 4.0)
        counts.append(len(waited) - before)
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


def test_pytorchs_methods_on_an_array_give_tensors_of_the_same_graph():
    leaf = gradwire.ones(2, 3, requires_grad=True)
    back = xp.asarray(leaf).view(2, 3)
    assert type(back) is gradwire.Tensor
    assert back.size(0) == 2
    (back * 2).sum().backward()
    assert leaf.grad.tolist() == [[2.0] * 3] * 2
    assert len(gradwire.utils.data.TensorDataset(xp.asarray(leaf))) == 2


def test_under_vmap_functions_see_one_sample():
    x = gradwire.arange(6.0).reshape(2, 3)
    made = gradwire.func.vmap(lambda one: xp.sum(xp.sin(one)) + one[0])(x)
    np.testing.assert_allclose(made.numpy(), np.sin(x.numpy()).sum(1) + x.numpy()[:, 0], rtol=1e-6)


# Gradients, with PyTorch's namespace as the judge.

DIFFERENTIABLE = {
    "elementwise": lambda xp, x, y: xp.sin(x) * xp.exp(y) + xp.log1p(xp.square(x)) / xp.hypot(x, y),
    "promotion": lambda xp, x, y: 2 - xp.astype(x, xp.float32) ** 3 + xp.atan2(y, x),
    "clip": lambda xp, x, y: xp.clip(x, -0.5, 0.5) + xp.maximum(x, y) + xp.where(x > 0, x, y),
    "remainder": lambda xp, x, y: xp.remainder(x, 0.3) + y,
    "statistics": lambda xp, x, y: (
        xp.mean(x) + xp.var(x, axis=0, correction=1.0) + xp.std(y, axis=0) + xp.max(y, axis=0)
    ),
    "products": lambda xp, x, y: xp.prod(x, axis=(0, 1)) + xp.tensordot(x, y, axes=2),
    "cumulative": lambda xp, x, y: xp.cumulative_sum(x, axis=1) * xp.cumulative_prod(y, axis=0),
    "matmul": lambda xp, x, y: x @ xp.matrix_transpose(y),
    "vecdot": lambda xp, x, y: xp.vecdot(x, y),
    "solve": lambda xp, x, y: xp.linalg.solve(x @ x.mT + xp.eye(3, dtype=x.dtype), y),
    "svd": lambda xp, x, y: xp.linalg.svdvals(x) + xp.linalg.eigvalsh(y @ y.mT),
    "norms": lambda xp, x, y: xp.linalg.vector_norm(x) + xp.linalg.matrix_norm(y) + xp.linalg.det(x[:, :3]),
    "fft": lambda xp, x, y: xp.abs(xp.fft.rfft(x)) ** 2 + xp.real(xp.fft.ifft(xp.astype(y, xp.complex128)))[:, :3],
    "shapes": lambda xp, x, y: xp.roll(xp.flip(x, axis=1), 2) + xp.reshape(xp.permute_dims(y, (1, 0)), (3, 4)),
    "joined": lambda xp, x, y: xp.concat([xp.tile(x, (2, 1)), xp.stack([y[0, :], y[1, :]])]),
    "taken": lambda xp, x, y: (
        xp.take(x, xp.asarray([2, 0, 2]), axis=0) * xp.take_along_axis(y, xp.asarray([[1], [0], [3]]), axis=1)
    ),
    "sorted": lambda xp, x, y: xp.sort(x, axis=1) * xp.diff(y, axis=1, prepend=y[:, :1]),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_pytorchs(name):
    torch = pytest.importorskip("torch", reason="PyTorch is the judge of gradients")
    theirs = pytest.importorskip(
        "array_api_compat.torch", reason="array-api-compat gives PyTorch the standard's namespace"
    )
    values = [np.random.default_rng(seed).normal(size=(3, 4)) for seed in (1, 2)]
    results = []
    for module, space in ((torch, theirs), (gradwire, xp)):
        leaves = [module.tensor(one, requires_grad=True) for one in values]
        inputs = leaves if module is torch else [xp.asarray(one) for one in leaves]
        space.sum(DIFFERENTIABLE[name](space, *inputs)).backward()
        results.append([np.zeros((3, 4)) if one.grad is None else one.grad.numpy() for one in leaves])
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
