"""Which dtypes ops do not take, where PyTorch has no kernel for them: one line an op.

A formula on arrays computes something of whatever it is given, so what is refused is declared. Left out is where only
PyTorch's processors lack a kernel that its GPUs have: float16 and bfloat16 of avg_pool3d, ctc_loss, pdist,
multi_margin_loss, multilabel_margin_loss, and the slopes of i1 and i1e. There numbers are right, and are answered.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.signature import REGISTRY
from gradwire_engine.ops.base.checks import ints

_SHORT = ("int64",)  # what some kernels take of whole numbers


def _no(names: str, kinds: str, kernel: str = "", says: str = "", **options: Any) -> None:
    for name in names.split():
        REGISTRY[name].lacks(kinds, kernel, says, **options)


def _when(name: str, parameter: str, *values: Any) -> Any:
    """Whether an argument of an op is one of these values."""
    place = REGISTRY[name].positions[parameter]
    return lambda *args: args[place] in values


def _dtype_of(value: Any) -> Any:
    return getattr(value, "dtype", None)


# Norms.
_no("batch_norm instance_norm", "bic", "batch_norm", of=("input",))
_no("layer_norm", "bic", "LayerNormKernelImpl", of=("input",))
_no("group_norm", "bic", "GroupNormKernelImpl", of=("input",))
_no("local_response_norm", "bic", "avg_pool2d", but=_SHORT, when=lambda input, *rest: 0 not in input.shape)

# Pooling.
_no("avg_pool1d avg_pool2d", "bic", "avg_pool2d", but=_SHORT)
_no("avg_pool3d", "bic", "avg_pool3d_out_frame", but=_SHORT)
_no("adaptive_avg_pool1d adaptive_avg_pool2d", "bi", "adaptive_avg_pool2d")
_no("adaptive_avg_pool3d", "bi", "adaptive_avg_pool3d_cpu")
for _dims in (1, 2, 3):
    _no(
        f"adaptive_avg_pool{_dims}d", "c", f"adaptive_avg_pool{max(_dims, 2)}d",
        when=lambda input, size: {1} != set(ints(size)),  # of one place it is a mean
    )  # fmt: skip
# What is averaged there is the power, which is whole of a whole exponent.
_no("lp_pool1d lp_pool2d", "i", "avg_pool2d", but=_SHORT, when=lambda input, power, *rest: isinstance(power, int))
_no("lp_pool3d", "i", "avg_pool3d_out_frame", but=_SHORT, when=lambda input, power, *rest: isinstance(power, int))
_no("max_pool1d", "bi", "max_pool1d_impl")
_no("max_unpool1d max_unpool2d", "bic", "max_unpool2d", of=("input",))
_no("max_unpool3d", "bic", "max_unpool3d", of=("input",))

# Convolutions and blocks.
_no("conv1d conv2d", "b", "slow_conv2d_cpu")
_no("conv3d", "b", "slow_conv3d_cpu")
for _dims in (1, 2, 3):
    _place = REGISTRY[f"conv{_dims}d"].positions["dilation"]
    _no(
        f"conv{_dims}d", "bi", "slow_conv_dilated<>", but=_SHORT,
        when=lambda *args, place=_place: any(step != 1 for step in ints(args[place])),
    )  # fmt: skip
_no("conv_transpose1d conv_transpose2d", "bi", "slow_conv_transpose2d_out_cpu", but=_SHORT)
_no("conv_transpose3d", "bi", "slow_conv_transpose3d_out_cpu", but=_SHORT)
_no("nn.functional.unfold", "i", "im2col_out_cpu")
_no("fold", "i", "col2im_out_cpu")
_no("grid_sample", "bic", "grid_sampler_2d_cpu_kernel_impl")

# Losses.
_no("mse_loss", "c", "mse_cpu")
_no("smooth_l1_loss", "c", "smooth_l1_cpu")
_no("huber_loss", "c", "huber_cpu")
_no("binary_cross_entropy", "c", "binary_cross_entropy")
_no("binary_cross_entropy_with_logits", "c", "log_sigmoid_cpu")
_no("kl_div", "i", says="kl_div: Integral inputs not supported.")
_no("kl_div", "c", says="kl_div: Complex inputs not supported.")
_no("nll_loss", "bic", "nll_loss_out_frame", of=("input",))
_no("gaussian_nll_loss", "i", says="result type Float can't be cast to the desired output type", of=("var",))
_no("gaussian_nll_loss", "c", "lt_cpu")
_no("cosine_similarity", "c", says="expected common dtype to be floating point, yet common dtype is complex")
_no("embedding_bag", "bic", says="Expected tensor for argument #1 'weight' to have one of the following scalar types: "
    "Half, BFloat16, Float, Double; but got another instead", of=("weight",))  # fmt: skip

# Elementwise.
_no("prelu", "bic", "prelu_cpu")
_no("threshold", "b", "threshold_cpu")
_no("round", "bi", "round_cpu", when=lambda input, decimals: bool(decimals))

# Order.
_no("topk", "c", says=" topk does not support complex dtypes on CPU")
_no("searchsorted bucketize", "c", "searchsorted_out_cpu")
_no("searchsorted", "b", "searchsorted_out_cpu", when=lambda bounds, input, *rest: bounds.dtype == _dtype_of(input))
_no("bucketize", "b", "searchsorted_out_cpu", when=lambda input, bounds, *rest: bounds.dtype == _dtype_of(input))

# Others.
for _name in ("atol", "rtol"):
    _no("linalg.pinv", "c", says=f"torch.linalg.pinv: {_name} tensor of complex type is not supported.", of=(_name,))
_place = REGISTRY["istft"].positions["return_complex"]
_no("istft", "c", says="Complex windows are incompatible with return_complex=False", of=("window",),
    when=lambda *args, place=_place: not args[place])  # fmt: skip

# Numbers that become elements.
for _name, _parameters in {
    "clamp": ("min", "max"), "index_fill": ("value",), "index_add": ("alpha",), "threshold": ("value",),
    "_scatter": ("src",), "_constant_pad": ("value",),
}.items():  # fmt: skip
    OPS[_name].fits(*_parameters)

# By what an argument says.
_no("pad", "b", "reflection_pad", when=_when("pad", "mode", "reflect"))
_no("pad", "b", "replication_pad", when=_when("pad", "mode", "replicate"))
for _mode, _kernel, _taken in (
    ("nearest", "compute_indices_weights_nearest", ("uint8",)),
    ("nearest-exact", "compute_indices_weights_nearest", ("uint8",)),
    ("linear", "compute_indices_weights_linear", ()),
    ("bilinear", "compute_indices_weights_linear", ("uint8",)),
    ("bicubic", "compute_indices_weights_cubic", ("uint8",)),
    ("trilinear", "compute_indices_weights_linear", ()),
):
    _no("interpolate", "bic", _kernel, but=_taken, when=_when("interpolate", "mode", _mode))
for _mode in ("amin", "amax"):
    _kernel = f"scatter_gather_tensor_cpu_reduce_{_mode}"
    _no("scatter_reduce", "c", _kernel, when=_when("scatter_reduce", "reduce", _mode))
    _kernel = "minimum_cpu" if _mode == "amin" else "maximum_cpu"
    _no("index_reduce", "c", _kernel, when=_when("index_reduce", "reduce", _mode))
_no("scatter_reduce", "b", "scatter_gather_tensor_cpu_reduce_mean", when=_when("scatter_reduce", "reduce", "mean"))
_no("index_reduce", "b", "div_floor_cpu", when=_when("index_reduce", "reduce", "mean"))
_no("index_reduce", "b", "index_reduce_func_exclude_input_init", when=_when("index_reduce", "include_self", False))
