"""Conversions: dtypes, devices, and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast, conj, real, real_view, to_device
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import ones, where, zeros
from gradwire_engine.ops.elementwise.unary import abs as modulus
from gradwire_engine.ops.elementwise.unary import sgn

Device = str


@composite(views="maybe")
def to(
    input: Array,
    dtype: DType | None = None,
    device: Device | None = None,
    *,
    non_blocking: bool = False,
    copy: bool = False,
) -> Array:
    """Convert to another dtype or device; return the same tensor if nothing changes (torch.Tensor.to)."""
    there = None if device is None else devices.canonical(device)
    here = input.device if hasattr(input, "node") else devices.device_of(input)
    moved = input
    if dtype is not None and dtype != input.dtype:
        moved = cast(moved, dtype)
    if there is not None and there != here:
        source, moved = moved, to_device(moved, there)
        if here == devices.CPU and isinstance(moved, Tensor):
            moved.note_bounds(source)
    return cast(moved, moved.dtype) if copy and moved is input else moved


@composite(views="maybe")
def type_as(input: Array, other: Array) -> Array:
    """Convert to the dtype of `other` (torch.Tensor.type_as)."""
    return to(input, other.dtype)


@composite(name="real", views="always")
def real_(input: Array) -> Array:
    """Real part, a view; a real tensor is returned unchanged (torch.real)."""
    return real_view(input) if dtypes.category(input.dtype) == dtypes.COMPLEX else input


@composite(name="conj", views="maybe")
def conjugate(input: Array) -> Array:
    """Complex conjugate; a real tensor is returned unchanged (torch.conj)."""
    return conj(input)


@op(view=True, node="SelectBackward0", cost=4)
def imag(xp: Any, input: Array) -> Array:
    """Imaginary part, a view (torch.imag)."""
    if dtypes.category(input.dtype) != dtypes.COMPLEX:
        raise EngineError(
            Reason.RUNTIME,
            f"imag is not implemented for tensors with non-complex dtypes: {dtypes.name_of(input.dtype)}",
        )
    return input.imag


imag.grad(input=lambda g: cast(g, dtypes.to_complex(g.dtype)) * 1j).tangent("linear")


@op(name="_imag_copy", node="ImagBackward0", cost=4)
def imaginary(xp: Any, input: Array) -> Array:
    """Copy of the imaginary part."""
    return input.imag.copy()


imaginary.grad(input=lambda g: cast(g, dtypes.to_complex(g.dtype)) * 1j).tangent("linear")


def _check_parts(one: Array, two: Array) -> None:
    """Refuse parts of complex numbers that are not both float32 or both float64. Raises EngineError: RUNTIME."""
    a, b = dtypes.TITLES[one.dtype], dtypes.TITLES[two.dtype]
    if any(part.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64) for part in (one, two)):
        raise EngineError(
            Reason.RUNTIME, f"Expected both inputs to be Half, Float or Double tensors but got {a} and {b}"
        )
    if one.dtype != two.dtype:
        raise EngineError(
            Reason.RUNTIME, f"Expected object of scalar type {a} but got scalar type {b} for second argument"
        )
    if one.dtype == dtypes.float16:
        raise EngineError(Reason.RUNTIME, "gradwire has no complex numbers of Half parts")


@op(name="complex", node="ComplexBackward0", cost=4)
def complex_(xp: Any, real: Array, imag: Array) -> Array:
    """Complex numbers from real and imaginary parts of one dtype (torch.complex)."""
    _check_parts(real, imag)
    real, imag = xp.broadcast_arrays(real, imag)
    made = xp.empty(real.shape, dtypes.to_complex(real.dtype))
    made.real, made.imag = real, imag
    return made


complex_.grad(real=lambda g: real(g), imag=lambda g: imaginary(g)).tangent("linear")


@op(cost=12)
def polar(xp: Any, abs: Array, angle: Array) -> Array:
    """Complex numbers from absolute values and angles, both float32 or both float64 (torch.polar)."""
    if abs.dtype == angle.dtype == dtypes.float16:
        raise EngineError(Reason.NOT_SUPPORTED, "\"polar_cpu\" not implemented for 'Half'", op="polar")
    _check_parts(abs, angle)
    dtype = dtypes.to_complex(abs.dtype)
    return (abs * xp.cos(angle) + 1j * (abs * xp.sin(angle))).astype(dtype, copy=False)


# As in PyTorch, a negative `abs` reverses the direction: sgn(out) is opposite to the angle's.
polar.works_in(forward=1.1, backward=2.7)
polar.grad(
    abs=lambda g, out: real(conj(g) * sgn(out)),
    angle=lambda g, out: real(conj(g) * (out * 1j)),
)
polar.tangent(
    lambda t_abs, t_angle, angle, out: (
        (0 if t_abs is None else polar(ones(angle), angle) * t_abs) + (0 if t_angle is None else out * t_angle * 1j)
    )
)


@op(cost=12)
def angle(xp: Any, input: Array) -> Array:
    """Angle of complex numbers; for real numbers 0, pi if negative, nan for nan (torch.angle)."""
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        input = input.astype(dtypes.float32)
    if input.dtype.kind == "c":
        return xp.angle(input)
    turned = xp.where(input < 0, xp.asarray(xp.pi, input.dtype), xp.asarray(0, input.dtype))
    return xp.where(xp.isnan(input), input, turned)


def _angle_input(g: Any, input: Any) -> Any:
    if dtypes.category(input.dtype) != dtypes.COMPLEX:
        return zeros(g)
    size = modulus(input)
    tangent = sgn(input) * 1j
    return where(eq(size, 0), 0, tangent * (g / where(eq(size, 0), 1, size)))


angle.grad(input=_angle_input).tangent("holomorphic")


@composite(views="always")
def resolve_conj(input: Array) -> Array:
    """Return the tensor itself: conjugation is never lazy here (torch.resolve_conj)."""
    return input
