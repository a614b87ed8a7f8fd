"""Public ops of convolution over 1, 2 or 3 spatial dimensions: they check and shape what primitives.py computes."""

from __future__ import annotations

from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import Composite, composite
from gradwire_engine.ops.base.checks import ints
from gradwire_engine.ops.nn.convolution.primitives import convolution, convolution_transpose, spread_channels
from gradwire_engine.ops.nn.windows import per_dim
from gradwire_engine.ops.shape.padding import constant_pad
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints


def _refuse(message: str, *operands: Array) -> None:
    raise EngineError(Reason.RUNTIME, message, shapes=[list(operand.shape) for operand in operands])


def _checked(name: str, value: Any, spatial: int) -> Ints:
    shown = [value] * spatial if isinstance(value, int) else list(value)
    return per_dim(
        value,
        spatial,
        f"expected {name} to be a single integer value or a list of {spatial} values to match the convolution "
        f"dimensions, but got {name}={shown}",
    )


def _check(
    input: Any, weight: Any, bias: Any, spatial: int, stride: Ints, padding: Ints, dilation: Ints, groups: int,
    transposed: bool,
) -> None:  # fmt: skip
    """Check a convolution's arguments as PyTorch does. Raises EngineError: RUNTIME, DTYPE."""
    if groups <= 0:
        _refuse("non-positive groups is not supported")
    if min(stride) <= 0:
        _refuse("non-positive stride is not supported")
    if min(padding) < 0:
        _refuse("negative padding is not supported")
    if min(dilation) <= 0:
        _refuse(f"dilation should be greater than zero, but got {list(dilation)}")
    if weight.ndim != spatial + 2:
        _refuse(
            f"weight should have at least three dimensions: expected {spatial + 2}-dimensional weight for "
            f"{spatial}-dimensional convolution, but got weight of size {list(weight.shape)} instead",
            weight,
        )
    if weight.shape[0] % groups:
        _refuse(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size [{list(weight.shape)}] instead"
        )
    if 0 in weight.shape[2:]:
        _refuse(f"kernel size should be greater than zero, but got {list(weight.shape[2:])}", weight)
    if weight.shape[0] < groups:
        _refuse(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{list(weight.shape)} instead",
            weight,
        )
    if transposed and 0 in input.shape[2:]:
        _refuse(
            f"Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}", input
        )
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.shape[1] != expected:
        given = "transposed=1" if transposed else f"groups={groups}"
        _refuse(
            f"Given {given}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have {expected} "
            f"channels, but got {input.shape[1]} channels instead",
            input,
            weight,
        )
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (out_channels,):
        _refuse(
            f"Given {'transposed=1' if transposed else ''}weight of size {list(weight.shape)}, expected bias to be "
            f"1-dimensional with {out_channels} elements, but got bias of size {list(bias.shape)} instead"
        )
    _check_dtypes(input, weight, bias)


def _check_dtypes(input: Any, weight: Any, bias: Any) -> None:
    names = dtypes.TITLES
    if input.dtype != weight.dtype:
        message = f"expected scalar type {names[input.dtype]} but found {names[weight.dtype]}"
        raise EngineError(Reason.DTYPE, message)
    if bias is not None and bias.dtype != input.dtype:
        kinds = {dtypes.float32: "float", dtypes.float64: "double"}
        a, b = (kinds.get(dtype, dtypes.name_of(dtype)) for dtype in (input.dtype, bias.dtype))
        raise EngineError(Reason.DTYPE, f"Input type ({a}) and bias type ({b}) should be the same")


def _batched(input: Any, spatial: int, name: str) -> Any:
    if input.ndim not in (spatial + 1, spatial + 2):
        _refuse(
            f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}",
            input,
        )
    return unsqueeze(input, 0) if input.ndim == spatial + 1 else input


def _conv(
    spatial: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    batched = _batched(input, spatial, f"conv{spatial}d")
    stride, dilation = _checked("stride", stride, spatial), _checked("dilation", dilation, spatial)
    if isinstance(padding, str):
        batched, padding = _named_padding(batched, weight, padding, stride, dilation)
    padding = _checked("padding", padding, spatial)
    _check(batched, weight, bias, spatial, stride, padding, dilation, groups, transposed=False)
    padded = [size + 2 * pad for size, pad in zip(batched.shape[2:], padding, strict=True)]
    reach = [step * (k - 1) + 1 for step, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(span > size for span, size in zip(reach, padded, strict=True)):
        _refuse(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: "
            f"({' x '.join(map(str, reach))}). Kernel size can't be greater than actual input size",
            input,
            weight,
        )
    made = convolution(batched, weight, bias, stride, padding, dilation, groups)
    return made if batched is input or made.ndim == input.ndim else squeeze(made, 0)


def _named_padding(input: Any, weight: Any, padding: str, stride: Ints, dilation: Ints) -> tuple[Any, Ints]:
    """Resolve "same" and "valid"; for an odd total, pad the input on the right first, as PyTorch does."""
    if padding == "valid":
        return input, (0,) * len(stride)
    if padding != "same":
        _refuse(f"Invalid padding string: '{padding}'")
    if any(step != 1 for step in stride):
        _refuse("padding='same' is not supported for strided convolutions")
    totals = [step * (k - 1) for step, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        extra: list[int] = []
        for total in reversed(totals):
            extra += [0, total % 2]
        input = constant_pad(input, tuple(extra), 0)
    return input, tuple(total // 2 for total in totals)


def _dilated(op: Composite) -> Any:
    """Predicate of a call's arguments: whether the dilation exceeds 1."""
    place = op.positions["dilation"]
    return lambda *args: any(step != 1 for step in ints(args[place]))


@composite
def conv1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints | Literal["valid", "same"] = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation over one spatial dimension (torch.nn.functional.conv1d).

    input: (n, c, l) or (c, l); weight: (o, c / groups, k); bias: (o,). padding may be "same" or "valid".
    Raises EngineError: RUNTIME for shapes that do not match, DTYPE.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


conv1d.unsupported("b", "slow_conv2d_cpu")
conv1d.unsupported("bi", "slow_conv_dilated<>", except_for=("int64",), when=_dilated(conv1d))


@composite
def conv2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints | Literal["valid", "same"] = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation over two spatial dimensions (torch.nn.functional.conv2d).

    input: (n, c, h, w) or (c, h, w); weight: (o, c / groups, kh, kw); bias: (o,). padding may be "same" or "valid".
    Raises EngineError: RUNTIME for shapes that do not match, DTYPE.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


conv2d.unsupported("b", "slow_conv2d_cpu")
conv2d.unsupported("bi", "slow_conv_dilated<>", except_for=("int64",), when=_dilated(conv2d))


@composite
def conv3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints | Literal["valid", "same"] = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation over three spatial dimensions (torch.nn.functional.conv3d).

    input: (n, c, d, h, w) or (c, d, h, w); weight: (o, c / groups, kd, kh, kw); bias: (o,).
    Raises EngineError: RUNTIME for shapes that do not match, DTYPE.
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


conv3d.unsupported("b", "slow_conv3d_cpu")
conv3d.unsupported("bi", "slow_conv_dilated<>", except_for=("int64",), when=_dilated(conv3d))


def _conv_transpose(
    spatial: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> Any:  # fmt: skip
    batched = _batched(input, spatial, f"conv_transpose{spatial}d")
    stride, dilation = _checked("stride", stride, spatial), _checked("dilation", dilation, spatial)
    padding, extra = _checked("padding", padding, spatial), _checked("output_padding", output_padding, spatial)
    _check(batched, weight, bias, spatial, stride, padding, dilation, groups, transposed=True)
    if any(more >= max(step, gap) for more, step, gap in zip(extra, stride, dilation, strict=True)):
        _refuse(
            f"output padding must be smaller than either stride or dilation, but got output_padding: {list(extra)} "
            f"stride: {list(stride)} dilation: {list(dilation)}"
        )
    size = tuple(
        (count - 1) * step - 2 * pad + gap * (k - 1) + 1 + more
        for count, step, pad, gap, k, more in zip(
            batched.shape[2:], stride, padding, dilation, weight.shape[2:], extra, strict=True
        )
    )
    if min(size) <= 0:
        given, made = (" x ".join(map(str, sizes)) for sizes in (batched.shape[2:], size))
        _refuse(
            f"Given input size per channel: ({given}). Calculated output size per channel: ({made}). "
            "Output size is too small",
            input,
        )
    if any(more >= step for more, step in zip(extra, stride, strict=True)):
        # output_padding >= stride: the windows do not reach the end. Compute what they reach, then cut and pad.
        full = tuple(length + 2 * pad - more for length, pad, more in zip(size, padding, extra, strict=True))
        result = convolution_transpose(batched, weight, None, stride, (0,) * spatial, dilation, groups, full)
        sides = zip(reversed(padding), reversed(extra), strict=True)
        result = constant_pad(result, tuple(side for pad, more in sides for side in (-pad, more - pad)), 0)
        result = result if bias is None else result + spread_channels(bias, result.ndim)
    else:
        result = convolution_transpose(batched, weight, bias, stride, padding, dilation, groups, size)
    return result if result.ndim == input.ndim else squeeze(result, 0)


@composite
def conv_transpose1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """Transposed convolution over one spatial dimension (torch.nn.functional.conv_transpose1d).

    input: (n, c, l) or (c, l); weight: (c, o / groups, k); bias: (o,). Raises EngineError: RUNTIME, DTYPE.
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose1d.unsupported("bi", "slow_conv_transpose2d_out_cpu", except_for=("int64",))


@composite
def conv_transpose2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """Transposed convolution over two spatial dimensions (torch.nn.functional.conv_transpose2d).

    input: (n, c, h, w) or (c, h, w); weight: (c, o / groups, kh, kw); bias: (o,). Raises EngineError: RUNTIME, DTYPE.
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose2d.unsupported("bi", "slow_conv_transpose2d_out_cpu", except_for=("int64",))


@composite
def conv_transpose3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """Transposed convolution over three spatial dimensions (torch.nn.functional.conv_transpose3d).

    input: (n, c, d, h, w) or (c, d, h, w); weight: (c, o / groups, kd, kh, kw). Raises EngineError: RUNTIME, DTYPE.
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose3d.unsupported("bi", "slow_conv_transpose3d_out_cpu", except_for=("int64",))
