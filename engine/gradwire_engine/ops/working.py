"""What ops take beside their results and give back, as `make memory` measures it; those not named here take nothing.

Each number is how many times the larger of an op's results and its largest operand; of formulas, of the gradient that
comes and those that are made, which is 1 unless told. Ops whose need is no such multiple tell it where they are.
For matrices it is what LAPACK is given, a copy in Fortran's order, and works in; what is drawn is drawn in float64.
"""

from gradwire_engine.op.declaration import OPS

_FORWARD = {
    "gather": 0.3, "_index": 0.8,
    "_adaptive_avg_pool": 1.1, "addcdiv": 1, "addcmul": 1, "all": 0.5, "allclose": 1.8, "any": 0.5, "argmax": 1,
    "argmin": 1, "argsort": 1.1, "_bce_with_logits": 2.2, "bernoulli": 1.4, "_binary_cross_entropy": 1.1,
    "binomial": 2.1, "bitwise_left_shift": 1.3, "bitwise_right_shift": 1.3, "cauchy": 3.2, "cholesky_solve": 0.8,
    "_convolution_transpose": 0.6, "count_nonzero": 0.5, "cumsum": 1.2, "digamma": 2.3, "exponential": 3.2, "frac":
    1, "geometric": 5.2, "hardsigmoid": 1, "hardswish": 1.2, "heaviside": 1.3, "histc": 1.6, "_huber_loss": 3.4,
    "isclose": 1.8, "isin": 5.6, "_label_sets": 5, "lcm": 3.2, "ldexp": 1, "leaky_relu": 1, "lerp": 3.4, "lgamma":
    2.3, "linalg.cholesky": 1.4, "linalg.cross": 3.2, "linalg.det": 1.1, "linalg.eig": 0.8, "linalg.eigh": 1.3,
    "linalg.eigvalsh": 1.1, "linalg.inv": 2.5, "linalg.lstsq": 0.7, "linalg.matrix_exp": 8, "linalg.pinv": 7.7,
    "linalg.solve": 0.8, "linalg.solve_triangular": 0.8, "linalg.svdvals": 0.3, "log_normal": 3.2, "logit": 1,
    "logsumexp": 2, "mish": 0.7, "mode": 1.3, "nan_to_num": 1.3, "_normal": 1, "poisson": 1, "polar": 1.1,
    "polygamma": 1.5, "random": 2, "remainder": 2.3, "_resample": 0.7, "rsqrt": 1, "_scatter_reduce": 1,
    "searchsorted": 1, "sinc": 2.2, "_smooth_l1_loss": 3.4, "softplus": 0.7, "softshrink": 0.8, "special.xlog1py":
    1.4, "std": 2, "_svd": 2, "_take_lines": 6, "uniform": 1, "_unique": 1.2, "var": 2, "xlogy": 1.4,
}  # fmt: skip
_FORMULAS = {
    "erfc": 2.1, "erfinv": 2.1, "_group_norm": 1.5, "log10": 2, "log2": 2, "maximum": 3, "minimum": 3,
    "acos": 3.1, "acosh": 2.1, "amax": 2.3, "amin": 2.3, "_as_strided": 5.2, "atan2": 2.4, "_binary_cross_entropy":
    2.3, "cholesky_solve": 2.2, "_ctc_loss": 3.8, "cumprod": 2, "digamma": 4.1, "div": 3.1, "erf": 2.1,
    "_euclidean_dist": 2.5, "_fft_r2c": 2.6, "gather": 3.1, "_huber_loss": 2.3, "index_select": 4, "lgamma": 2.3,
    "linalg.cholesky": 3.7, "linalg.det": 6.9, "linalg.eig": 16, "linalg.eigh": 3.2, "linalg.eigvalsh": 3.4,
    "linalg.lstsq": 3.1, "linalg.lu": 4.6, "linalg.lu_factor": 9.5, "linalg.matrix_exp": 33, "linalg.pinv": 5.6,
    "linalg.svdvals": 7.7, "linalg.vector_norm": 3.1, "logcumsumexp": 3.2, "logit": 4, "_max_pool": 2.3, "mish":
    3.1, "_mvlgamma": 4.4, "polar": 2.7, "polygamma": 4.1, "_prelu_kernel": 2.4, "_qr": 5.9, "_real": 3.1,
    "_resample": 5, "_scatter_reduce": 3.9, "sinc": 3.3, "_smooth_l1_loss": 3.3, "special.i1": 2.3, "special.i1e":
    2.4, "_svd": 4.8,
}  # fmt: skip
# A small gradient comes back as large as the input, and takes nothing: it is shown as a view. Or as itself.
_SHOWN = (
    "sum", "mean", "expand", "_transposed", "_fold", "_squeezed", "reshape", "view", "view_dtype", "squeeze",
    "unsqueeze", "permute", "transpose", "t", "_alias", "view_as_real", "view_as_complex", "clone",
)  # fmt: skip
# Half types are computed in float32.
_WIDENED = (
    "clamp", "clamp_min", "clamp_max", "celu", "elu", "hardtanh", "hardsigmoid", "hardswish", "mm", "bmm", "baddbmm",
    "addmm", "_linear_mm", "_linear_addmm", "_matmul_batched", "erf", "erfc", "erfinv", "i0", "igamma", "igammac",
    "ldexp", "cumprod", "cumsum", "logit", "digamma", "lgamma", "logsumexp", "deg2rad", "_convolution", "_mse_loss",
    "_adaptive_avg_pool", "_huber_loss",
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal",
)  # fmt: skip
# Operands are brought to a dtype, but results are smaller than they.
_REDUCING = ("_mse_loss", "_smooth_l1_loss", "_huber_loss", "_bce_with_logits", "_scaled_sum")

for _name, _times in _FORWARD.items():
    OPS[_name].works_in(forward=_times)
for _name, _times in _FORMULAS.items():
    OPS[_name].works_in(backward=_times)
for _name in _SHOWN:
    OPS[_name].works_in(backward=0, grows=False)
for _name in _WIDENED:
    OPS[_name].widens = True
for _name in _REDUCING:
    OPS[_name].works_in(grows=True)
