"""Functions composed of ops: copies of views, matrix factors, histograms, differences, transforms of Hermitian signals.

Each call runs in both libraries with fresh random inputs; values, gradients and second gradients must agree.
"""

import warnings

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.filterwarnings("ignore::UserWarning")]

# Calls of a (4, 4) tensor x with a dominant diagonal, y (4, 4) and a vector v (6).
DIFFERENTIABLE = {
    "alias_copy": lambda t, x, y, v: t.alias_copy(x),
    "as_strided_copy": lambda t, x, y, v: t.as_strided_copy(x, (2, 3), (4, 1), 1),
    "diagonal_copy": lambda t, x, y, v: t.diagonal_copy(x, 1),
    "expand_copy": lambda t, x, y, v: t.expand_copy(v, (2, 6)),
    "narrow_copy": lambda t, x, y, v: t.narrow_copy(x, 1, 1, 2) + x.narrow_copy(1, 0, 2),
    "permute_copy": lambda t, x, y, v: t.permute_copy(x, (1, 0)),
    "select_copy": lambda t, x, y, v: t.select_copy(x, 0, 2),
    "slice_copy": lambda t, x, y, v: t.slice_copy(x, 1, 0, 3, 2),
    "split_copy": lambda t, x, y, v: t.split_copy(v, 4),
    "split_with_sizes_copy": lambda t, x, y, v: t.split_with_sizes_copy(v, [1, 5]),
    "squeeze_copy": lambda t, x, y, v: t.squeeze_copy(x[None], 0),
    "t_copy": lambda t, x, y, v: t.t_copy(x),
    "transpose_copy": lambda t, x, y, v: t.transpose_copy(x, 0, 1),
    "unbind_copy": lambda t, x, y, v: t.unbind_copy(x, 1),
    "unfold_copy": lambda t, x, y, v: t.unfold_copy(v, 0, 3, 2),
    "unsqueeze_copy": lambda t, x, y, v: t.unsqueeze_copy(x, 1),
    "view_as_real_copy": lambda t, x, y, v: t.view_as_real_copy(t.complex(x, y)),
    "view_copy": lambda t, x, y, v: t.view_copy(x, (2, 8)),
    "cholesky": lambda t, x, y, v: t.cholesky(x @ x.mT) + (x @ x.mT).cholesky(upper=True),
    "lu": lambda t, x, y, v: t.lu(t.stack([x, x + 1]))[0] + x.lu()[0],
    "lu wide": lambda t, x, y, v: t.lu(x[:3], get_infos=True).LU,
    "lu_solve": lambda t, x, y, v: t.lu_solve(y, *t.linalg.lu_factor(x)) + y.lu_solve(*x.lu()),
    "lu_unpack": lambda t, x, y, v: t.lu_unpack(*t.linalg.lu_factor(t.stack([y, x])))[1:],
    "lu_unpack tall": lambda t, x, y, v: t.lu_unpack(*t.linalg.lu_factor(y[:, :3]))[1:],
    "lu_unpack wide": lambda t, x, y, v: t.lu_unpack(*t.linalg.lu_factor(y[:3]))[1:],
    "orgqr": lambda t, x, y, v: t.orgqr(y[:, :3], v[:3]) + y[:, :3].orgqr(v[:3]),
    "triangular_solve": lambda t, x, y, v: t.triangular_solve(y, x),
    "triangular_solve transposed": lambda t, x, y, v: y.triangular_solve(x, upper=False, transpose=True).solution,
    "triangular_solve unit": lambda t, x, y, v: t.triangular_solve(y, x, transpose=True, unitriangular=True)[0],
    "frobenius_norm": lambda t, x, y, v: t.frobenius_norm(x, (0, 1), True) + t.frobenius_norm(y, 1),
    "nuclear_norm": lambda t, x, y, v: t.nuclear_norm(x) + t.nuclear_norm(y, (0, 1), True),
    "norm_except_dim": lambda t, x, y, v: t.norm_except_dim(x, 2, 0) + t.norm_except_dim(y, 2, -1),
    "lu_factor_ex": lambda t, x, y, v: t.linalg.lu_factor_ex(x).LU,
    "solve_ex": lambda t, x, y, v: t.linalg.solve_ex(x, y).result + t.linalg.solve_ex(x, y[0]).result,
    "solve_ex right": lambda t, x, y, v: t.linalg.solve_ex(x, y, left=False)[0],
    "linalg.matmul": lambda t, x, y, v: t.linalg.matmul(x, y),
    "gradient": lambda t, x, y, v: t.gradient(x),
    "gradient dim": lambda t, x, y, v: t.gradient(x, spacing=0.5, dim=1, edge_order=2),
    "gradient spacing": lambda t, x, y, v: t.gradient(x, spacing=[0.5, 2.0], dim=(1, 0)),
    "gradient places": lambda t, x, y, v: t.gradient(v, spacing=(t.tensor([0.0, 1, 3, 4, 8, 9]).double(),)),
    "gradient places 2": lambda t, x, y, v: t.gradient(
        v, spacing=(t.tensor([0.0, 1, 3, 4, 8, 9]).double(),), edge_order=2
    ),
    "hfftn": lambda t, x, y, v: t.fft.hfftn(t.complex(x, y)),
    "hfftn sizes": lambda t, x, y, v: t.fft.hfftn(t.complex(x, y), s=(3, 5), norm="ortho"),
    "hfft2": lambda t, x, y, v: t.fft.hfft2(t.complex(x, y), norm="forward"),
    "ihfftn": lambda t, x, y, v: t.fft.ihfftn(x, dim=(0,)).abs(),
    "ihfft2": lambda t, x, y, v: t.view_as_real(t.fft.ihfft2(x, norm="backward")),
}


def _parts(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_composed_functions_and_their_gradients_are_pytorchs(name):
    random = RNG
    first = random.standard_normal((4, 4)) * 0.3 + 2 * np.eye(4)
    second, third = random.standard_normal((4, 4)), random.standard_normal(6)

    def told(t):
        x, y, v = (t.tensor(values, requires_grad=True) for values in (first, second, third))
        parts = _parts(DIFFERENTIABLE[name](t, x, y, v))
        weighted = [((part * part).sum() * (1 + at)).real for at, part in enumerate(parts) if part.requires_grad]
        leaves = (x, y, v)
        once = t.autograd.grad(sum(weighted), leaves, create_graph=True, allow_unused=True)
        used = [each for each in once if each is not None and each.requires_grad]
        twice = t.autograd.grad(sum((each * each).sum() for each in used), leaves, allow_unused=True) if used else ()
        return *[part.detach() for part in parts], *[one.detach() for one in (*once, *twice) if one is not None]

    agree(told)


VALUES = {
    "lu_unpack permutation": lambda t, x: t.lu_unpack(*t.linalg.lu_factor(t.stack([x, x.flip(0)])))[0],
    "lu_unpack permutation tall": lambda t, x: t.lu_unpack(*t.linalg.lu_factor(x[:, :2]), unpack_data=False),
    "lu_unpack data": lambda t, x: t.lu_unpack(*t.linalg.lu_factor(x), unpack_pivots=False),
    "lu infos": lambda t, x: t.lu(t.zeros(2, 3, 3), get_infos=True),
    "lu_factor_ex singular": lambda t, x: t.linalg.lu_factor_ex(t.stack([x * 0, x])).info,
    "solve_ex singular": lambda t, x: [e[1] for e in t.linalg.solve_ex(t.stack([x * 0, x]), x)],
    "ormqr": lambda t, x: t.ormqr(x[:, :2], x[0, :2], x) + x[:, :2].ormqr(x[0, :2], x, False, True),
    "ormqr right": lambda t, x: t.ormqr(x[:, :2], x[0, :2], x[:3], left=False),
    "histogram": lambda t, x: t.histogram(x, 5),
    "histogram range": lambda t, x: x.float().histogram(4, range=(-0.5, 1.0), density=True),
    "histogram edges": lambda t, x: t.histogram(x, t.tensor([-1.0, -0.5, 0, 2]).double(), weight=x * x),
    "histogram equal": lambda t, x: t.histogram(t.full((3,), 2.0), 2),
    "histogram none": lambda t, x: t.histogram(t.zeros(0), 3),
    "histogram of a bound": lambda t, x: t.histogram(t.tensor([0.0, 1, 2, 3, 3, 4]), 3, range=(0.0, 3.0)),
    "histogramdd": lambda t, x: t.histogramdd(x.reshape(-1, 2), [2, 3]),
    "histogramdd number": lambda t, x: t.histogramdd(x, 2, range=[-1.0, 1.0] * 4, density=True),
    "histogramdd edges": lambda t, x: t.histogramdd(
        x[:, :2], [t.tensor([-1.0, 0, 1]).double(), t.tensor([-2.0, 2]).double()], weight=x[0]
    ),
    "nonzero_static": lambda t, x: t.nonzero_static(x > 0, size=9) + (x > 0).nonzero_static(size=9, fill_value=-5),
    "nonzero_static few": lambda t, x: t.nonzero_static(t.ones(3, 2), size=2),
    "unravel_index": lambda t, x: t.unravel_index(t.tensor([[3, 5], [11, 0]]), (2, 3, 2)),
    "unravel_index number": lambda t, x: t.unravel_index(t.tensor(7), t.Size([10])),
    "gradient of whole numbers": lambda t, x: t.gradient((x * 10).long(), dim=0),
    "fftfreq": lambda t, x: t.fft.fftfreq(5, d=0.5),
    "fftfreq even": lambda t, x: t.fft.fftfreq(6, dtype=t.float64),
    "rfftfreq": lambda t, x: t.fft.rfftfreq(7, 0.25) + t.fft.rfftfreq(6),
    "kaiser_window": lambda t, x: t.kaiser_window(7) + t.kaiser_window(7, False, beta=5.0, dtype=t.float64),
    "kaiser_window short": lambda t, x: t.kaiser_window(1),
    "range": lambda t, x: t.range(0, 2.5, 0.5),
    "range down": lambda t, x: t.range(3, 1, -1, dtype=t.int64),
    "view_as_complex_copy": lambda t, x: t.view_as_complex_copy(x.reshape(8, 2)).real,
    "as_strided_scatter": lambda t, x: t.as_strided_scatter(x, x[:2, :3], (2, 3), (4, 1), 2),
    "as_strided_scatter method": lambda t, x: x.as_strided_scatter(x[0], (4,), (5,)),
    "empty_strided": lambda t, x: [t.empty_strided((2, 3), (1, 4)).stride(), x.new_empty_strided((2,), (3,)).dtype],
    "empty_permuted": lambda t, x: t.empty_permuted((2, 3, 4), (0, 2, 1), dtype=t.float64).stride(),
    "detach_copy": lambda t, x: t.detach_copy(x),
    "signal windows": lambda t, x: [
        getattr(t.signal.windows, name)(length, sym=sym, dtype=t.float64)
        for name in [
            "bartlett",
            "blackman",
            "cosine",
            "exponential",
            "gaussian",
            "hamming",
            "hann",
            "kaiser",
            "nuttall",
        ]
        for length in (0, 1, 2, 7)
        for sym in (True, False)
    ],
    "signal windows with arguments": lambda t, x: [
        t.signal.windows.exponential(6, center=1.5, tau=2.0, sym=False),
        t.signal.windows.gaussian(6, std=0.4),
        t.signal.windows.kaiser(6, beta=3.0),
        t.signal.windows.general_cosine(6, a=[0.5, 0.3, 0.2]),
        t.signal.windows.general_hamming(6, alpha=0.6, sym=False),
    ],
    "tensordot broadcasts": lambda t, x: t.tensordot(x[:1, :, None], x.reshape(4, 2, 2), dims=[[0, 1], [2, 0]]),
    "sum_to_size of nothing": lambda t, x: (x[0, 0] > 0).sum_to_size([]),
    "istft of whole spectra": lambda t, x: t.istft(t.complex(x, x.T), 4, window=t.ones(4).double()),
    "gather of nothing": lambda t, x: t.gather(x, 0, t.zeros(0, dtype=t.uint8)),
    "pixel_shuffle of nothing": lambda t, x: t.nn.functional.pixel_shuffle(x[:0].reshape(2, 0, 1, 1), 2),
    "native_channel_shuffle": lambda t, x: t.native_channel_shuffle(x.reshape(1, 4, 4), 2),
    "constant_pad_nd of bools": lambda t, x: t.constant_pad_nd(x > 0, (1, 1), True),
    "masks of one byte": lambda t, x: [
        x[t.tensor(0, dtype=t.uint8)],
        x[t.tensor(1, dtype=t.uint8)],
        x[0, t.tensor(1, dtype=t.uint8)],
    ],
    "clamp of bools": lambda t, x: [(x > 0).clamp_max(x[0, 0] > 0), t.clamp(x > 0, min=x[1, 1] > 0)],
    "operators by method": lambda t, x: [x.__rdiv__(2), x.__rmatmul__(x.T)],
    "gradient without spacing": lambda t, x: t.gradient(x, spacing=None),
    "ops of ATen": lambda t, x: [t.ops.aten.slice_copy(x, 0, 0, 2), t.ops.aten.add.Tensor(x, x)],
    "copies are no views": lambda t, x: [t.view_copy(x, (16,))._is_view(), t.alias_copy(x) is x],
    "copies to out": lambda t, x: t.permute_copy(x, (1, 0), out=t.empty(4, 4, dtype=t.float64)),
}


@pytest.mark.parametrize("name", VALUES)
def test_composed_values_are_pytorchs(name):
    given = RNG.standard_normal((4, 4)) * 0.6
    agree(lambda t: _parts(VALUES[name](t, t.tensor(given))))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_matrix_factors_of_each_dtype(dtype):
    random = RNG
    given = (random.standard_normal((2, 3, 3)) + 1j * random.standard_normal((2, 3, 3))).astype("complex128")
    given = given if "complex" in dtype else given.real

    def told(t):
        x = 0.3 * t.tensor(given).to(getattr(t, dtype)) + 3 * t.eye(3)  # well conditioned: float32 keeps its digits
        factors, pivots = t.lu(x)
        made = (
            *t.lu_unpack(factors, pivots),
            t.lu_solve(x, factors, pivots),
            t.triangular_solve(x, x).solution,
            t.ormqr(factors[..., :2], factors[..., 0, :2] * 0.1, x),
            t.linalg.solve_ex(x, x).result,
            t.frobenius_norm(x, (1, 2)),
            t.fft.hfftn(x),
        )
        return [t.view_as_real(each) if each.is_complex() else each for each in made]

    agree(told)


@pytest.mark.parametrize("shape", [(12, 5), (5, 12), (2, 8, 6)])
def test_approximate_decompositions_are_pytorchs_by_the_same_numbers(shape):
    random = RNG
    given = random.standard_normal((*shape[:-1], 3)) @ random.standard_normal((*shape[:-2], 3, shape[-1]))

    def told(t):
        x = t.tensor(given)
        t.manual_seed(7)
        found = []
        for left, values, right in (t.svd_lowrank(x, q=3), t.pca_lowrank(x, q=2, niter=1), t.pca_lowrank(x)):
            found += [(left[..., :2] * values[..., None, :2]) @ right[..., :2].mT, values[..., :2]]
        return *found, t.svd_lowrank(x, 2, M=x * 0.5)[1]

    agree(told)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (2, 9, 9)])
def test_extreme_eigenpairs_are_pytorchs(shape, largest):
    given = RNG.standard_normal(shape)
    weight = RNG.standard_normal(shape)
    start = RNG.standard_normal((*shape[:-1], 2))

    def told(t):
        x = t.tensor(given)
        x = (x @ x.mT).requires_grad_()
        b = t.tensor(weight)
        b = b @ b.mT + 9 * t.eye(shape[-1], dtype=t.float64)
        values, vectors = t.lobpcg(x, 2, X=t.tensor(start), largest=largest, niter=400, tol=1e-9)
        projections = vectors @ vectors.mT  # signs of vectors are any
        slope = t.autograd.grad((values.sin().sum() + (projections * t.tensor(weight)).sum()), x)[0]
        others = t.lobpcg(x.detach(), 1, b, X=t.tensor(start)[..., :1], largest=largest, niter=400, tol=1e-9)
        return values, projections, slope, others[0], others[1] @ others[1].mT

    for found, expected in zip(told(gradwire), told(torch), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-4, 1e-5)


REFUSALS = [
    (lambda t: t.lobpcg(t.eye(5), 2), ValueError, "is smaller than 3 x the number of requested eigenpairs"),
    (lambda t: t.lobpcg(t.ones(6, 5), 1), AssertionError, "A must be square"),
    (lambda t: t.lobpcg(t.eye(6), 1, t.eye(5)), AssertionError, "A and B must have same shape"),
    (lambda t: t.histogram(t.ones(2).long(), 2), NotImplementedError, "not implemented for 'Long'"),
    (lambda t: t.histogram(t.tensor([1.0, float("nan")]), 2), RuntimeError, "is not finite"),
    (lambda t: t.histogram(t.ones(2), 2, range=(1.0, 0.0)), RuntimeError, "min should not exceed max"),
    (lambda t: t.histogram(t.ones(2), 0), RuntimeError, "must be > 0"),
    (lambda t: t.histogramdd(t.ones(2), [2]), RuntimeError, "at least 2 dimensions"),
    (lambda t: t.histogramdd(t.ones(2, 2), [2]), RuntimeError, "2 bin counts"),
    (lambda t: t.nonzero_static(t.ones(2), size=-1), RuntimeError, "non-negative"),
    (lambda t: t.unravel_index(t.ones(2), (2,)), TypeError, "integer dtype"),
    (lambda t: t.gradient(t.ones(1)), RuntimeError, "at least edge_order"),
    (lambda t: t.gradient(t.ones(3), edge_order=3), RuntimeError, "edge_order=1 and edge_order=2"),
    (lambda t: t.gradient(t.ones(3), dim=1), IndexError, "Dimension out of range"),
    (lambda t: t.empty_strided((2,), (1, 2)), RuntimeError, "must match dimensionality"),
    (lambda t: t.empty_permuted((2, 3), (0, 0)), RuntimeError, "Duplicate dim"),
    (lambda t: t.empty_permuted((2, 3), (0,)), RuntimeError, "does not match the length"),
    (lambda t: t.ormqr(t.ones(3, 2), t.ones(2), t.ones(2, 2)), RuntimeError, r"other.shape\[-2\]"),
    (lambda t: t.lu_unpack(t.ones(2, 2), t.ones(2)), RuntimeError, "int32"),
    (lambda t: t.linalg.lu_factor_ex(t.zeros(2, 2), check_errors=True), RuntimeError, "is zero"),
    (lambda t: t.linalg.solve_ex(t.zeros(2, 2), t.ones(2), check_errors=True), RuntimeError, "singular"),
    (lambda t: t.triangular_solve(t.ones(2), t.ones(2, 2)), RuntimeError, "Expected b to have at least 2"),
    (lambda t: t.pca_lowrank(t.ones(3, 2), q=5), ValueError, "non-negative integer"),
    (lambda t: t.as_strided_scatter(t.ones(4), t.ones(3), (2,), (1,)), RuntimeError, "expected src to have a size"),
    (lambda t: t.range(0, 3, 0), RuntimeError, "step must be nonzero"),
    (lambda t: t.ones(2).flip(), TypeError, 'missing 1 required positional arguments: "dims"'),
    (lambda t: t.ones(2).expand(), TypeError, 'missing 1 required positional arguments: "size"'),
    (lambda t: t.ones(2, 2).movedim((0, 0), (0, 1)), RuntimeError, "repeated dim in `source`"),
    (lambda t: t.ones(2, 2).movedim((0, 1), (1, 1)), RuntimeError, "repeated dim in `destination`"),
    (lambda t: t.ones(2, 0)[1, t.tensor([1])], IndexError, "for dimension with size 0"),
    (lambda t: t.ones(2).__delitem__(0), TypeError, "does not support deleting"),
    (lambda t: t.signal.windows.gaussian(3, std=-1), ValueError, "must be positive"),
    (lambda t: t.signal.windows.hann(-1), ValueError, "non-negative window length"),
    (lambda t: t.segment_reduce(t.ones(3), "sum", lengths=t.tensor([1, 1])), RuntimeError, "(?i)expected all rows"),
    (
        lambda t: t.nn.functional.linear_cross_entropy(t.ones(2, 3), t.ones(2, 2), t.ones(2)),
        RuntimeError,
        "in_features",
    ),
    (lambda t: t.range(3, 0), RuntimeError, "inconsistent with step sign"),
    (lambda t: t.slice_copy(t.ones(3), 0, 0, 2, 0), RuntimeError, "step must be positive"),
    (lambda t: t.view_copy(t.ones(2), (2,), out=t.ones(2).int()), RuntimeError, "(?i)int"),
]


@pytest.mark.parametrize(("call", "error", "phrase"), REFUSALS)
def test_bad_calls_are_refused_as_by_pytorch(call, error, phrase):
    refuse(call, error, phrase)


def test_gradient_of_as_strided_scatter_is_that_of_a_write_through_a_view():
    # PyTorch's own formula gives the gradient of the written elements to others.
    random = RNG
    first, second = random.standard_normal((4, 4)), random.standard_normal((2, 3))

    def told(t):
        x, y = (t.tensor(values, requires_grad=True) for values in (first, second))
        if t is torch:
            made = x.clone()
            made.as_strided((2, 3), (4, 1), 2).copy_(y)
        else:
            made = t.as_strided_scatter(x, y, (2, 3), (4, 1), 2)
        once = t.autograd.grad((made**3).sum(), (x, y), create_graph=True)
        return *[each.detach() for each in once], *t.autograd.grad(sum((each**2).sum() for each in once), (x, y))

    agree(told)


def test_range_warns():
    import gradwire

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradwire.range(0, 1)
    assert "torch.range is deprecated" in str(caught[0].message)


def test_integers_of_fractional_bounds_are_pytorchs():
    def case(t):
        made = [
            t.arange(*given, dtype=dtype)
            for given in ((0.5, 3.9), (0, -5, -1.5), (0, 5, 1.5))
            for dtype in (t.int64, t.int32)
        ]
        made += [t.logspace(0.5, 4.3, steps, base, dtype=t.int64) for steps in (1, 2, 4) for base in (10.0, 2.5)]
        return made

    agree(case)


def test_differences_of_order_0_and_wrapped_indices_are_pytorchs():
    def case(t):
        x = t.arange(6.0).view(2, 3)
        return [
            t.diff(x, n=0, prepend=x, append=x),
            t.take_along_dim(x, t.tensor([[-1], [-3]]), 1),
            t.take_along_dim(x, t.tensor([[-4], [3]]), 1),
        ]

    agree(case)


def test_what_no_gradient_reaches_gets_none_not_zeros():
    def case(t):
        def gradients(result, *inputs):
            given = t.autograd.grad(result.sum(), inputs, allow_unused=True)
            return [one is None for one in given]

        x, w = t.ones(3, requires_grad=True), t.ones(3, requires_grad=True)
        empty, none = t.zeros(5, 0, requires_grad=True), t.zeros(0, requires_grad=True)
        matrix = t.ones(5, 2, requires_grad=True)
        (t.linalg.vector_norm(x * 2, 0) * w.sum()).backward()
        rows = t.ones(2, 3, requires_grad=True)
        return (
            (x.grad, w.grad),
            gradients(x.norm(0) + w.sum(), x, w),
            gradients(t.linalg.householder_product(empty, none), empty, none),
            gradients(t.ormqr(empty, none, matrix), empty, none, matrix),
            t.autograd.grad(t.cdist(rows, rows, 0).sum(), rows),
        )

    agree(case)
