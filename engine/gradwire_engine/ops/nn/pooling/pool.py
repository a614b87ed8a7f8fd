"""Max, average and adaptive average pooling over 1, 2 or 3 spatial dimensions: checks PyTorch's arguments.

primitives.py computes them.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.checks import ints
from gradwire_engine.ops.nn.pooling.primitives import adaptive_avg_pool, avg_pool, max_pool, max_pool_with_indices
from gradwire_engine.ops.nn.windows import Window, per_dim
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints


def _refuse(message: str, reason: Reason = Reason.RUNTIME) -> None:
    raise EngineError(reason, message)


def _check_max_pool1d(kernel: int, stride: int, padding: int, dilation: int) -> None:
    """Check the arguments of max_pool1d, for which PyTorch has its own messages. Raises EngineError: RUNTIME."""
    for key, value in (("kernel_size", kernel), ("stride", stride)):
        if value <= 0:
            _refuse(f"max_pool1d() {key} must be greater than zero, but got {value}")
    if padding < 0:
        _refuse(f"max_pool1d() padding must be non-negative, but got {padding}")
    if padding > kernel // 2:
        _refuse(
            f"max_pool1d() padding should be at most half of kernel size, but got padding={padding} and "
            f"kernel_size={kernel}"
        )
    if dilation <= 0:
        _refuse(f"max_pool1d() dilation must be greater than zero, but got {dilation}")


def _arguments(name: str, spatial: int, **given: Any) -> list[Ints]:
    """Check kernel, stride, padding and dilation and convert them to tuples. Raises EngineError: RUNTIME."""
    words = ("", "int", "two ints", "three ints")[spatial]
    kernel = per_dim(
        given["kernel_size"], spatial, f"{name}: kernel_size must either be a single int, or a tuple of {words}"
    )
    stride = given["stride"]
    steps = (
        kernel
        if stride is None or stride in ((), [])
        else per_dim(stride, spatial, f"{name}: stride must either be omitted, a single int, or a tuple of {words}")
    )
    pads, dilations = (
        per_dim(given[key], spatial, f"{name}: {key} must {be} a single int, or a tuple of {words}")
        for key, be in (("padding", "either be"), ("dilation", "be either"))
    )
    if name == "max_pool1d":
        _check_max_pool1d(kernel[0], steps[0], pads[0], dilations[0])
    if min(steps) == 0:
        _refuse("stride should not be zero")
    if min(steps) < 0 or min(kernel) <= 0:
        _refuse(f"{name}: kernel size and stride should be greater than zero, but got {list(kernel)} and {list(steps)}")
    if min(dilations) <= 0:
        given_steps = " ".join(
            f"dilation{axis}: {step}" for axis, step in zip("THW"[-spatial:], dilations, strict=True)
        )
        _refuse(f"dilation should be greater than zero, but got {given_steps}")
    if min(pads) < 0:
        _refuse(f"pad must be non-negative, but got pad: {min(pads)}")
    for pad, k, step in zip(pads, kernel, dilations, strict=True):
        if pad > (step * (k - 1) + 1) // 2:
            _refuse(
                "pad should be at most half of effective kernel size, but got "
                f"pad={pad}, kernel_size={k} and dilation={step}"
            )
    return [kernel, steps, pads, dilations]


def _check_input(name: str, input: Any, spatial: int) -> None:
    ranks = (spatial + 1, spatial + 2)
    if input.ndim not in ranks or 0 in input.shape[-spatial - 1 :]:
        if spatial == 1:
            _refuse(
                f"{name}: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                f"{list(input.shape)}"
            )
        if input.ndim in ranks:
            _refuse(
                f"{name}: Expected {ranks[0]}D or {ranks[1]}D (batch mode) tensor with optional 0 dim batch size for "
                f"input, but got:{list(input.shape)}"
            )
        _refuse(f"{name}: non-empty {ranks[0]}D or {ranks[1]}D (batch mode) tensor expected for input")


def _check_padding(kernel: Ints, pads: Ints) -> None:
    """Refuse a padding of more than half the kernel without its gaps."""
    if all(pad <= size // 2 for pad, size in zip(pads, kernel, strict=True)):
        return
    if len(kernel) == 2:
        told = f"padW = {pads[1]}, padH = {pads[0]}, kW = {kernel[1]}, kH = {kernel[0]}"
    else:
        told = f"kT: {kernel[0]} kW: {kernel[2]} kH: {kernel[1]} padT: {pads[0]} padW: {pads[2]} padH: {pads[1]}"
    _refuse(f"pad should be smaller than or equal to half of kernel size, but got {told}")


def _check_output(input: Any, window: Window) -> None:
    if min(window.output) >= 1:
        return
    spatial = len(window.size)
    if spatial == 1:
        _refuse(f"max_pool1d() Invalid computed output size: {window.output[0]}")
    shape = "x".join(map(str, input.shape[-spatial - 1 :]))
    made = "x".join(map(str, (input.shape[-spatial - 1], *window.output)))
    _refuse(f"Given input size: ({shape}). Calculated output size: ({made}). Output size is too small")


def _max(
    spatial: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    name = f"max_pool{spatial}d"
    kernel, steps, pads, dilations = _arguments(
        name, spatial, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation
    )
    _check_input(name, input, spatial)
    _check_padding(kernel, pads)
    if input.dtype == dtypes.bool_ or dtypes.category(input.dtype) == dtypes.COMPLEX:
        _refuse(f"\"{name}\" not implemented for '{dtypes.TITLES[input.dtype]}'", Reason.NOT_SUPPORTED)
    size = tuple(input.shape[-spatial:])
    window = Window(size, kernel, steps, pads, dilations, ceil_mode)
    if spatial == 1 and return_indices and min(window.output) < 1:  # refused in the words of two dimensions
        window = Window((1, *size), (1, *kernel), (1, *steps), (0, *pads), (1, *dilations), ceil_mode)
        _check_output(unsqueeze(input, -2), window)
    _check_output(input, window)
    if spatial == 1:  # computed in two dimensions, as in PyTorch
        flat = unsqueeze(input, -2)
        made = _pooled(flat, return_indices, (1, *kernel), (1, *steps), (0, *pads), (1, *dilations), ceil_mode)
        return (squeeze(made[0], -2), squeeze(made[1], -2)) if return_indices else squeeze(made, -2)
    return _pooled(input, return_indices, kernel, steps, pads, dilations, ceil_mode)


def _pooled(input: Any, return_indices: bool, *window: Any) -> Any:
    """The maxima, and on request their indices."""
    if return_indices:
        return tuple(max_pool_with_indices(input, *window))[:2]
    return max_pool(input, *window)[0]


@composite(outputs=("values", "indices"))
def max_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool1d).

    input: (n, c, l) or (c, l). return_indices: also return each maximum's index. Raises EngineError: RUNTIME,
    NOT_SUPPORTED.
    """
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


max_pool1d.unsupported("bi", "max_pool1d_impl")


@composite(outputs=("values", "indices"))
def max_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool2d).

    input: (n, c, h, w) or (c, h, w). return_indices: also return each maximum's index in the flattened (h, w).
    Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(outputs=("values", "indices"))
def max_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool3d).

    input: (n, c, d, h, w) or (c, d, h, w). return_indices: also return each maximum's index in the flattened (d, h, w).
    Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


for _pool in (max_pool1d, max_pool2d, max_pool3d):
    _pool.variant("", return_indices=False)
    _pool.variant("return_indices", _pool.outputs, return_indices=True)


def _avg(
    spatial: int, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool,
    divisor: int | None,
) -> Any:  # fmt: skip
    name = f"avg_pool{spatial}d"
    kernel, steps, pads, _ = _arguments(
        name, spatial, kernel_size=kernel_size, stride=stride, padding=padding, dilation=1
    )
    _check_input(name, input, spatial)
    if divisor == 0:
        _refuse("divisor must be not zero")
    if spatial == 1:
        flat = unsqueeze(input, -2)
        kernel, steps, pads = (1, *kernel), (1, *steps), (0, *pads)
        _check_output(flat, Window(tuple(flat.shape[-2:]), kernel, steps, pads, (1, 1), ceil_mode))
        return squeeze(avg_pool(flat, kernel, steps, pads, ceil_mode, include_pad, divisor), -2)
    if spatial == 3 and any(n < k for n, k in zip(input.shape[-3:], kernel, strict=True)):
        image = "T: {} H: {} W: {}".format(*input.shape[-3:])
        _refuse(f"input image ({image}) smaller than kernel size (kT: {kernel[0]} kH: {kernel[1]} kW: {kernel[2]})")
    _check_output(input, Window(tuple(input.shape[-spatial:]), kernel, steps, pads, (1,) * spatial, ceil_mode))
    return avg_pool(input, kernel, steps, pads, ceil_mode, include_pad, divisor)


@composite
def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool1d). input: (n, c, l) or (c, l)."""
    return _avg(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


avg_pool1d.unsupported("bic", "avg_pool2d", except_for=("int64",))


@composite
def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool2d). input: (n, c, h, w) or (c, h, w)."""
    return _avg(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


avg_pool2d.unsupported("bic", "avg_pool2d", except_for=("int64",))


@composite
def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool3d). input: (n, c, d, h, w) or (c, d, h, w)."""
    return _avg(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


avg_pool3d.unsupported("bic", "avg_pool3d_out_frame", except_for=("int64",))


def _adaptive(spatial: int, input: Any, output_size: Any) -> Any:
    name = f"adaptive_avg_pool{spatial}d"
    if input.ndim <= spatial:
        _refuse(f"Input dimension should be at least {spatial + 1}", Reason.ARGUMENT_VALUE)
    given = (output_size,) * spatial if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) != spatial:
        _refuse(f"{name}: output_size must be {spatial}")
    sizes = tuple(
        size if wanted is None else wanted for wanted, size in zip(given, input.shape[-spatial:], strict=True)
    )
    if min(sizes) < 0:
        _refuse(f"{name}: elements of output_size must be greater than or equal to 0 but received {list(sizes)}")
    if max(sizes) != 1 or min(sizes) != 1:  # a single output element is a mean, which accepts any shape
        if input.ndim > spatial + 2:
            _refuse(f"{name}(): Expected {spatial + 1}D or {spatial + 2}D tensor, but got {list(input.shape)}")
        if 0 in input.shape[-spatial if spatial < 3 else 1 :]:
            _refuse(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
                f"{list(input.shape)}"
            )
    return adaptive_avg_pool(input, sizes)


def _to_several(input: Any, size: Any) -> bool:
    """Whether the output has several elements per channel; for one, pooling is a mean."""
    return {1} != set(ints(size))


@composite
def adaptive_avg_pool1d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool1d)."""
    if input.ndim > 3:
        _refuse(f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument #1 'self'")
    pooled = _adaptive(2, unsqueeze(input, -2), (1, *(per_dim(output_size, 1, "output_size must be one int"))))
    return squeeze(pooled, -2)


adaptive_avg_pool1d.unsupported("bi", "adaptive_avg_pool2d")
adaptive_avg_pool1d.unsupported("c", "adaptive_avg_pool2d", when=_to_several)


@composite
def adaptive_avg_pool2d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool2d).

    output_size: an int, or (h, w) where None keeps a size. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _adaptive(2, input, output_size)


adaptive_avg_pool2d.unsupported("bi", "adaptive_avg_pool2d")
adaptive_avg_pool2d.unsupported("c", "adaptive_avg_pool2d", when=_to_several)


@composite
def adaptive_avg_pool3d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool3d).

    output_size: an int, or (d, h, w) where None keeps a size. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _adaptive(3, input, output_size)


adaptive_avg_pool3d.unsupported("bi", "adaptive_avg_pool3d_cpu")
adaptive_avg_pool3d.unsupported("c", "adaptive_avg_pool3d", when=_to_several)
