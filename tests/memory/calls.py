"""One call of each op on operands of mebibytes, keyed by the op's name, to measure its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradwire_engine as engine

Args = tuple[Any, ...]
Maker = Callable[["Sizes"], "Args | tuple[Args, dict[str, Any]]"]
CALLS: dict[str, Maker] = {}


class Sizes:
    """Operands of one call: `long` elements in a vector, `side` in each dimension of a matrix."""

    def __init__(self, long: int, side: int) -> None:
        self.long = long
        self.side = side
        self.rng = np.random.default_rng(1)

    def f(self, *shape: int, grad: bool = True) -> engine.Tensor:
        """Single precision, from 0.1 to 0.9; of no sizes given a vector."""
        values = self.rng.random(shape or (self.long,), np.float32)
        values *= 0.8
        values += 0.1
        return engine.tensor(values, grad)

    def p(self, *shape: int) -> engine.Tensor:
        """As `f`, and no gradient is asked for."""
        return self.f(*shape, grad=False)

    def d(self, *shape: int) -> engine.Tensor:
        """Double precision; of no sizes given a matrix that can be inverted."""
        values = self.rng.random(shape or (self.side, self.side))
        if not shape:
            values += 2 * np.sqrt(self.side) * np.eye(self.side)
        return engine.tensor(values, True)

    def definite(self) -> engine.Tensor:
        """A matrix that is symmetric and positive definite."""
        values = self.rng.random((self.side, self.side))
        return engine.tensor(values + values.T + 2 * self.side * np.eye(self.side), True)

    def c(self, *shape: int) -> engine.Tensor:
        """Complex of single precision, half as many; of no sizes given a vector."""
        shape = shape or (self.long // 2,)
        return engine.tensor((self.rng.random(shape) + 1j * self.rng.random(shape)).astype(np.complex64), True)

    def w(self, *shape: int, below: int = 3) -> engine.Tensor:
        """Whole numbers from 0, half as many; of no sizes given a vector."""
        return engine.tensor(self.rng.integers(0, below, shape or (self.long // 2,)))

    def b(self, *shape: int) -> engine.Tensor:
        """Bools, of no sizes given as many as `f` has."""
        return engine.tensor(self.rng.random(shape or (self.long,), np.float32) < 0.5)

    def images(self, dims: int, channels: int = 4) -> engine.Tensor:
        """Images of so many dimensions, `long` elements in all."""
        each = self.long // (4 * channels)
        size = round(each ** (1 / dims)) // 2 * 2
        return self.f(4, channels, *[size] * dims)

    @property
    def square(self) -> tuple[int, int]:
        """The shape of a matrix of `long` elements."""
        return self.long // self.side, self.side


def calls(names: str, maker: Maker) -> None:
    """Say how the ops of these names are called."""
    for name in names.split():
        assert name not in CALLS, name
        CALLS[name] = maker


BIG = Sizes(1 << 21, 1 << 10)
SMALL = Sizes(1 << 12, 1 << 5)

calls(
    """T abs acos acosh angle argwhere asin asinh atan atanh atleast_1d atleast_2d atleast_3d ceil clone conj
    contiguous cos cosh deg2rad detach digamma erf erfc erfinv exp exp2 expm1 flatten flipud floor frac gelu
    hardshrink hardsigmoid hardswish hardtanh i0 isfinite isinf isnan isneginf isposinf isreal lgamma log log10 log1p
    log2 logical_not logit logsigmoid mish msort nan_to_num neg nonzero positive rad2deg ravel real reciprocal relu
    relu6 resolve_conj frexp round rrelu rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink
    softsign special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.ndtr special.ndtri
    sqrt square squeeze t tan tanh tanhshrink trunc unique unique_consecutive zero ones_like zeros_like empty_like
    special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
    special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
    special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.spherical_bessel_j0
    rand_like randn_like all amax amin aminmax any argmax argmin argsort count_nonzero max mean median min nanmean
    nanmedian nansum prod sort std std_mean sum var var_mean linalg.norm linalg.vector_norm norm celu elu leaky_relu
    bernoulli cauchy diff exponential log_normal poisson random uniform trapezoid cumulative_trapezoid
    fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fftn fft.ifftn fft.rfftn fft.irfftn fft.fftshift
    fft.ifftshift histc""",
    lambda s: (s.f(),),
)  # fmt: skip
calls("rot90 fliplr mT mH H linalg.diagonal diagonal trace tril triu corrcoef cov linalg.matrix_norm normalize",
      lambda s: (s.f(*s.square),))  # fmt: skip
calls("imag view_as_real", lambda s: (s.c(),))
calls("view_as_complex", lambda s: (s.f(s.long // 2, 2),))
calls("complex polar", lambda s: (s.f(), s.f()))
calls("bitwise_not one_hot bincount", lambda s: (s.w(),))
calls(
    """add allclose atan2 copysign div eq equal float_power fmax fmin fmod ge gt hypot isclose ldexp le
    logaddexp logaddexp2 logical_and logical_or logical_xor lt maximum minimum mul ne nextafter pow remainder rsub
    sub xlogy special.xlog1py type_as copy dist dot mse_loss l1_loss smooth_l1_loss
    huber_loss poisson_nll_loss kl_div soft_margin_loss hinge_embedding_loss
    binary_cross_entropy_with_logits binary_cross_entropy""",
    lambda s: (s.f(), s.p()),
)
calls("floor_divide heaviside", lambda s: (s.p(), s.p()))
calls("igamma igammac special.zeta", lambda s: (s.p(), s.f()))
calls("vdot linalg.vecdot expand_as reshape_as view_as", lambda s: (s.f(), s.f()))
calls("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm", lambda s: (s.w(), s.w()))
calls("addcdiv addcmul lerp gaussian_nll_loss", lambda s: (s.f(), s.f(), s.f()))
calls("margin_ranking_loss", lambda s: (s.f(), s.f(), s.p()))
calls("where", lambda s: (s.b(), s.f(), s.f()))
calls(
    """special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
    special.chebyshev_polynomial_w special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
    special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h
    special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p""",
    lambda s: (s.f(), engine.call("mul", (s.p(), 12.0))),
)
calls("binomial standard_gamma_grad", lambda s: (s.p(), s.p()))
calls("standard_gamma", lambda s: (s.p(),))
calls("sample_dirichlet", lambda s: (s.p(*s.square),))
calls("dirichlet_grad", lambda s: (engine.call("sigmoid", (s.f(),)), s.p(), engine.call("add", (s.p(), 2.0))))
calls("clamp threshold", lambda s: (s.f(), 0.2, 0.7))
calls("clamp_max clamp_min geometric fill full_like", lambda s: (s.f(), 0.5))
calls("renorm", lambda s: (s.f(*s.square), 2, 0, 0.5))
calls("mvlgamma", lambda s: (engine.call("add", (s.f(), 3.0)), 3))
calls("polygamma", lambda s: (1, s.f()))
calls("prelu", lambda s: (s.f(), s.f(1)))
calls("randint_like", lambda s: (s.f(), 0, 9))
calls("cummax cummin cumprod cumsum logcumsumexp log_softmax softmax softmin logsumexp", lambda s: (s.f(*s.square), 1))
calls("softmax/first log_softmax/first cumsum/first logsumexp/first cumprod/first", lambda s: (s.f(*s.square), 0))
calls("sum/dim mean/dim amax/dim prod/dim var/dim norm/dim argmax/dim std_mean/dim any/dim nansum/dim",
      lambda s: ((s.f(*s.square),), {"dim": 0}))  # fmt: skip
calls("max/dim min/dim median/dim mode nanmedian/dim sort/dim aminmax/dim", lambda s: ((s.f(*s.square),), {"dim": 1}))
calls("kthvalue topk", lambda s: (s.f(*s.square), s.side // 2))
calls("quantile nanquantile", lambda s: (s.f(), 0.3))
calls("quantile/dim", lambda s: (s.f(*s.square), 0.3, 1))
calls("searchsorted", lambda s: (engine.call("sort", (s.p(),))[0], s.p()))
calls("bucketize", lambda s: (s.p(), engine.call("sort", (s.p(),))[0]))
calls("isin", lambda s: (s.f(), s.f(s.side)))
calls("isin/many", lambda s: (s.f(), s.f()))
calls("normal_ bernoulli_", lambda s: (s.p(),))
calls("dropout alpha_dropout", lambda s: (s.f(), 0.5, True))
calls("dropout3d feature_alpha_dropout", lambda s: (s.images(3), 0.5, True))
calls("dropout1d", lambda s: (s.images(1), 0.5, True))
calls("dropout2d", lambda s: (s.images(2), 0.5, True))
calls("glu", lambda s: (s.f(*s.square), 1))
calls("multinomial", lambda s: (s.f(), 100))
calls("multinomial/again", lambda s: (s.f(), s.long, True))
calls("randperm", lambda s: (s.long,))
calls("zeros ones empty rand randn", lambda s: ((s.long,),))
calls("full", lambda s: ((s.long,), 2.0))
calls("randint", lambda s: (0, 9, (s.long,)))
calls("normal", lambda s: (s.f(), s.f()))
calls("arange", lambda s: (s.long,))
calls("linspace logspace", lambda s: (0.0, 1.0, s.long))
calls("eye", lambda s: (s.side,))
calls("tril_indices triu_indices", lambda s: (s.side, s.side))
calls("scalar_tensor", lambda s: (1.0,))
calls("new_empty new_ones new_zeros", lambda s: (s.f(1), (s.long,)))
calls("new_full", lambda s: (s.f(1), (s.long,), 2.0))
calls("to", lambda s: (s.f(), np.dtype(np.float64)))
calls("view_dtype", lambda s: (s.p(), np.dtype(np.int32)))

# Shapes.
calls("expand broadcast_to", lambda s: (s.f(s.side), (s.long // s.side, s.side)))
calls("reshape view", lambda s: (s.f(), s.square))
calls("sum_to_size", lambda s: (s.f(*s.square), (1, s.side)))
calls("unflatten", lambda s: (s.f(), 0, s.square))
calls("as_strided", lambda s: (s.f(), s.square, (s.side, 1)))
calls("broadcast_tensors", lambda s: ([s.f(), s.f(1)],))
calls("meshgrid", lambda s: ([s.f(s.side), s.f(s.side)],))
calls("cartesian_prod", lambda s: ([s.f(s.side), s.f(s.side)],))
calls("combinations", lambda s: (s.f(s.side),))
calls("block_diag", lambda s: ([s.f(s.side, s.side // 2), s.f(s.side, s.side // 2)],))
calls("cat hstack vstack dstack column_stack stack", lambda s: ([s.f(*s.square), s.f(*s.square)],))
calls("chunk tensor_split hsplit vsplit split unsafe_chunk unsafe_split", lambda s: (s.f(*s.square), 2))
calls("dsplit", lambda s: (s.f(s.long // 16, 4, 4), 2))
calls("split_with_sizes unsafe_split_with_sizes", lambda s: (s.f(s.long), [s.long // 2, s.long // 2]))
calls("unbind", lambda s: (s.f(8, s.long // 8),))
calls("narrow", lambda s: (s.f(), 0, 0, s.long // 2))
calls("select", lambda s: (s.f(2, s.long // 2), 0, 0))
calls("unsqueeze", lambda s: (s.f(), 0))
calls("take_geometry", lambda s: (s.f(), s.f()))
calls("make_dual", lambda s: (s.f(), s.f(), s.f(1), 1))
calls("dual_primal dual_tangent", lambda s: (s.f(), s.f(1)))
calls("exit_dual_level", lambda s: (s.f(1),))
calls("check_all", lambda s: (engine.tensor(np.ones(s.long, bool)), "not all are true"))
calls("movedim moveaxis swapaxes swapdims transpose", lambda s: (s.f(*s.square), 0, 1))
calls("permute", lambda s: (s.f(*s.square), (1, 0)))
calls("unfold", lambda s: (s.f(), 0, 4, 4))
calls("diag diagflat diag_embed", lambda s: (s.f(s.side),))
calls("diagonal_scatter", lambda s: (s.f(s.side, s.side), s.f(s.side)))
calls("select_scatter", lambda s: (s.f(2, s.long // 2), s.f(s.long // 2), 0, 0))
calls("slice_scatter", lambda s: (s.f(), s.f(s.long // 2), 0, 0, s.long // 2))
calls("flip", lambda s: (s.f(*s.square), (0, 1)))
calls("roll", lambda s: (s.f(*s.square), (3, 5), (0, 1)))
calls("repeat tile", lambda s: (s.f(), (2,)))
calls("repeat_interleave", lambda s: (s.f(), 2))
calls("pad", lambda s: (s.f(*s.square), (3, 3)))
calls("pad/circular pad/reflect pad/replicate", lambda s: ((s.images(2), (3, 3, 2, 2)), {}))
calls("channel_shuffle", lambda s: (s.images(2), 2))
calls("pixel_shuffle", lambda s: (s.images(2), 2))
calls("pixel_unshuffle", lambda s: (s.f(4, 4, s.side // 2 * 2, s.long // (16 * s.side) // 2 * 2), 2))

# Index and scatter.
calls("index_select", lambda s: (s.f(*s.square), 0, s.w(s.long // s.side, below=s.long // s.side)))
calls("index_select/last", lambda s: (s.f(*s.square), 1, s.w(s.side, below=s.side)))
calls("index_add index_copy",
      lambda s: (s.f(*s.square), 0, s.w(s.long // s.side, below=s.long // s.side), s.f(*s.square)))  # fmt: skip
calls("index_fill", lambda s: (s.f(*s.square), 0, s.w(s.long // s.side, below=s.long // s.side), 0.5))
calls("index_reduce",
      lambda s: (s.f(*s.square), 0, s.w(s.long // s.side, below=s.long // s.side), s.f(*s.square), "amax"))  # fmt: skip
calls("gather", lambda s: (s.f(*s.square), 1, s.w(*s.square, below=s.side)))
calls("gather/first", lambda s: (s.f(*s.square), 0, s.w(*s.square, below=s.long // s.side)))
calls("take_along_dim", lambda s: (s.f(*s.square), s.w(*s.square, below=s.side), 1))
calls("scatter scatter_add", lambda s: (s.f(*s.square), 1, s.w(*s.square, below=s.side), s.f(*s.square)))
calls("scatter_reduce", lambda s: (s.f(*s.square), 1, s.w(*s.square, below=s.side), s.f(*s.square), "amax"))
calls("take", lambda s: (s.f(), s.w(below=s.long)))
calls("put", lambda s: (s.f(), s.w(below=s.long), s.f(s.long // 2)))
calls("masked_fill", lambda s: (s.f(), s.b(), 0.5))
calls("masked_select", lambda s: (s.f(), s.b()))
calls("masked_scatter", lambda s: (s.f(), s.b(), s.f()))
calls("getitem", lambda s: (s.f(), (s.w(below=s.long),)))
calls("getitem/mask", lambda s: (s.f(), (s.b(),)))
calls("setitem", lambda s: (engine.call("mul", (s.f(), 1.0)), (s.w(below=s.long),), s.f(s.long // 2)))
calls("index_put", lambda s: (s.f(), [s.w(below=s.long)], s.f(s.long // 2)))
calls("embedding", lambda s: (s.w(s.long // s.side, below=s.side), s.f(s.side, s.side)))
calls("embedding_bag", lambda s: (s.w(s.long // s.side, 4, below=s.side), s.f(s.side, s.side)))

# Products and linear algebra.
calls("mm matmul linear inner", lambda s: (s.f(s.side, s.side), s.f(s.side, s.side)))
calls("matmul/batch", lambda s: (s.f(4, s.side // 2, s.side), s.f(s.side, s.side)))
calls("bmm", lambda s: (s.f(4, s.side, s.side // 2), s.f(4, s.side // 2, s.side)))
calls("baddbmm", lambda s: (s.f(4, s.side, s.side), s.f(4, s.side, s.side // 2), s.f(4, s.side // 2, s.side)))
calls("addbmm", lambda s: (s.f(s.side, s.side), s.f(4, s.side, s.side // 2), s.f(4, s.side // 2, s.side)))
calls("addmm", lambda s: (s.f(s.side, s.side), s.f(s.side, s.side), s.f(s.side, s.side)))
calls("addmv", lambda s: (s.f(s.side), s.f(s.side, s.side), s.f(s.side)))
calls("mv", lambda s: (s.f(*s.square), s.f(s.side)))
calls("addr", lambda s: (s.f(s.side, s.side), s.f(s.side), s.f(s.side)))
calls("outer", lambda s: (s.f(s.side), s.f(s.side)))
calls("kron", lambda s: (s.f(32, s.side // 32), s.f(32, s.side // 32)))
calls("tensordot", lambda s: (s.f(s.side, s.side), s.f(s.side, s.side), 1))
calls("einsum", lambda s: ("ij,jk->ik", [s.f(s.side, s.side), s.f(s.side, s.side)]))
calls("linalg.multi_dot", lambda s: ([s.f(s.side, s.side), s.f(s.side, s.side), s.f(s.side, s.side)],))
calls("cross linalg.cross", lambda s: (s.f(s.long // 3, 3), s.f(s.long // 3, 3)))
calls("cdist", lambda s: (s.f(s.side, 64), s.f(s.side, 64)))
calls("cdist/one cdist/three", lambda s: ((s.f(s.side, 64), s.f(s.side, 64)), {}))
calls("pdist", lambda s: (s.f(s.side, 64),))
calls("pdist/one pdist/three", lambda s: ((s.f(s.side, 64),), {}))
calls("bilinear", lambda s: (s.f(s.side, 32), s.f(s.side, 32), s.f(s.side, 32, 32)))
calls(
    """det linalg.det logdet linalg.slogdet slogdet linalg.inv inverse linalg.lu linalg.lu_factor linalg.qr
    linalg.cond linalg.lu_factor_ex geqrf linalg.ldl_factor linalg.ldl_factor_ex""",
    lambda s: (s.d(),),
)
calls("linalg.svd linalg.svdvals linalg.pinv linalg.matrix_exp matrix_exp linalg.matrix_rank linalg.eigvals",
      lambda s: (s.d(s.side // 2, s.side // 2),))  # fmt: skip
calls("linalg.eig", lambda s: (engine.tensor(s.rng.random((s.side // 2, s.side // 2))),))
calls("linalg.eigh linalg.eigvalsh linalg.cholesky", lambda s: (s.definite(),))
calls("linalg.matrix_power", lambda s: (s.d(), 5))
calls("linalg.solve", lambda s: (s.d(), s.d(s.side, s.side)))
calls("linalg.lstsq", lambda s: (s.d(s.side, s.side // 2), s.d(s.side, s.side // 2)))
calls("linalg.solve_triangular", lambda s: ((engine.call("triu", (s.d(),)), s.d(s.side, s.side)), {"upper": True}))
calls("cholesky_solve", lambda s: (s.d(s.side, s.side), engine.call("linalg.cholesky", (s.definite(),))))
calls("cholesky_inverse", lambda s: (engine.call("linalg.cholesky", (s.definite(),)),))
calls("linalg.ldl_solve", lambda s: (*engine.call("linalg.ldl_factor", (s.d(),)), s.d(s.side, s.side)))
calls("linalg.lu_solve", lambda s: (*engine.call("linalg.lu_factor", (s.d(),)), s.d(s.side, s.side)))
calls("linalg.householder_product", lambda s: (s.d(s.side, s.side), s.d(s.side)))
calls("linalg.tensorinv", lambda s: (engine.call("reshape", (s.d(), (s.side, 1, s.side))), 1))
calls("linalg.tensorsolve", lambda s: (engine.call("reshape", (s.d(), (s.side, 1, s.side))), s.d(s.side, 1)))
calls("linalg.vander", lambda s: ((s.f(s.long // s.side),), {"N": s.side}))
calls("pairwise_distance cosine_similarity", lambda s: (s.f(*s.square), s.f(*s.square)))
calls("fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2", lambda s: (s.f(*s.square),))
calls("fft.fft/prime fft.rfft/prime fft.irfft/prime", lambda s: (s.f(s.long - 9),))
calls("fft.fft/complex", lambda s: (s.c(),))
calls("fft.fft/first", lambda s: (s.f(s.long // s.side, s.side), None, 0))
calls("stft", lambda s: ((s.p(), 256), {"return_complex": True, "window": s.p(256)}))
calls("istft", lambda s: ((engine.call("stft", (s.p(), 256), {"return_complex": True}), 256), {}))

# Layers and losses.
for _dims in (1, 2, 3):
    calls(f"adaptive_avg_pool{_dims}d adaptive_max_pool{_dims}d", lambda s, d=_dims: (s.images(d), [3] * d))
    calls(f"avg_pool{_dims}d max_pool{_dims}d", lambda s, d=_dims: (s.images(d), 2))
    calls(f"max_pool{_dims}d/overlap avg_pool{_dims}d/overlap", lambda s, d=_dims: (s.images(d), 3, 1))
    calls(f"lp_pool{_dims}d", lambda s, d=_dims: (s.images(d), 2, 2))
    calls(f"conv{_dims}d", lambda s, d=_dims: (s.images(d), s.f(4, 4, *[3] * d)))
    calls(f"conv_transpose{_dims}d", lambda s, d=_dims: (s.images(d), s.f(4, 4, *[3] * d)))
    calls(
        f"max_unpool{_dims}d",
        lambda s, d=_dims: (*engine.call(f"max_pool{d}d", (s.images(d), 2), {"return_indices": True}), 2),
    )
calls("batch_norm", lambda s: ((s.images(2), None, None), {"training": True}))
calls("batch_norm/weighted", lambda s: ((s.images(2), None, None, s.f(4), s.f(4)), {"training": True}))
calls("instance_norm", lambda s: (s.images(2),))
calls("group_norm", lambda s: (s.images(2), 2))
calls("layer_norm rms_norm", lambda s: (s.f(*s.square), (s.side,)))
calls("layer_norm/weighted", lambda s: (s.f(*s.square), (s.side,), s.f(s.side), s.f(s.side)))
calls("local_response_norm", lambda s: (s.images(2), 3))
calls("interpolate", lambda s: ((s.images(2),), {"scale_factor": 2, "mode": "bilinear"}))
calls("interpolate/nearest", lambda s: ((s.images(2),), {"scale_factor": 2}))
calls("grid_sample", lambda s: (s.f(1, 4, s.side // 2, s.side // 2), s.f(1, s.side // 2, s.side // 2, 2)))
calls("nn.functional.unfold", lambda s: (s.images(2), 2))
calls("fold", lambda s: (s.f(4, 4 * 4, 64 * s.long // s.side), (65, s.long // s.side + 1), 2))
calls(
    "lstm_layer",
    lambda s: (
        s.f(64, s.long >> 15, 128),
        s.f(s.long >> 15, 128),
        s.f(s.long >> 15, 128),
        s.f(512, 128),
        s.f(512, 128),
    ),
)
calls(
    "gru_layer",
    lambda s: (s.f(64, s.long >> 15, 128), s.f(s.long >> 15, 128), s.f(384, 128), s.f(384, 128), s.f(384), s.f(384)),
)
calls("rnn_layer", lambda s: (s.f(64, s.long >> 13, 128), s.f(s.long >> 13, 128), s.f(128, 128), s.f(128, 128)))
calls(
    "lstm_layer/projected",
    lambda s: (
        (s.f(64, s.long >> 15, 128), s.f(s.long >> 15, 64), s.f(s.long >> 15, 128), s.f(512, 128), s.f(512, 64)),
        {"weight_hr": s.f(64, 128)},
    ),
)
calls("scaled_dot_product_attention", lambda s: (s.f(4, s.side, 64), s.f(4, s.side, 64), s.f(4, s.side, 64)))
calls("scaled_dot_product_attention/causal",
      lambda s: ((s.f(4, s.side, 64), s.f(4, s.side, 64), s.f(4, s.side, 64)), {"is_causal": True}))  # fmt: skip
calls(
    "multi_head_attention_forward",
    lambda s: (s.f(s.side, 2, 64), s.f(s.side, 2, 64), s.f(s.side, 2, 64), 64, 2, s.f(192, 64), s.f(192), None, None,
               False, 0.0, s.f(64, 64), s.f(64)),
)  # fmt: skip
calls("cross_entropy nll_loss multi_margin_loss", lambda s: (s.f(*s.square), s.w(s.long // s.side, below=s.side)))
calls("cross_entropy/soft multilabel_soft_margin_loss", lambda s: (s.f(*s.square), s.p(*s.square)))
calls("multilabel_margin_loss", lambda s: (s.f(s.long // 64, 64), s.w(s.long // 64, 64, below=64)))
calls("cosine_embedding_loss", lambda s: (s.f(*s.square), s.f(*s.square), s.p(s.long // s.side)))
calls("triplet_margin_loss", lambda s: (s.f(*s.square), s.f(*s.square), s.f(*s.square)))
calls(
    "ctc_loss",
    lambda s: (engine.call("log_softmax", (s.f(64, s.side // 4, 128), 2)), s.w(s.side // 4, 20, below=127),
               engine.tensor(np.full(s.side // 4, 64)), engine.tensor(np.full(s.side // 4, 20))),
)  # fmt: skip
_MODES = {"pad/circular": "circular", "pad/reflect": "reflect", "pad/replicate": "replicate"}
_ORDERS = {"cdist/one": 1.0, "cdist/three": 3.0, "pdist/one": 1.0, "pdist/three": 3.0}


def arguments(name: str, sizes: Sizes) -> tuple[Args, dict[str, Any]]:
    """The arguments of a call by position and by name."""
    made = CALLS[name](sizes)
    args, kwargs = made if len(made) == 2 and type(made[0]) is tuple and type(made[1]) is dict else (made, {})
    if name in _MODES:
        kwargs = {"mode": _MODES[name]}
    if name in _ORDERS:
        kwargs = {"p": _ORDERS[name]}
    return args, kwargs
