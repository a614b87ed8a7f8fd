"""Functions: answers questions about descriptions without the server, and adapts ops of another signature."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import Any

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireNotImplementedError, GradwireTypeError, refuse
from gradwire._base.promotion import COMPLEX, category, promote_types
from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire._tensor.out import _into
from gradwire._tensor.storages import UntypedStorage
from gradwire._tensor.tensor import Tensor

_INTS = ("int8", "int16", "int32", "int64")
_LETTERS = ascii_uppercase + ascii_lowercase
_FLOATS = ("float32", "float64")


def numel(input: Tensor) -> int:
    """The number of elements (torch.numel)."""
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating (torch.is_floating_point)."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex (torch.is_complex)."""
    return input.is_complex()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero (torch.is_nonzero). Raises RuntimeError if there is not exactly one."""
    return input.is_nonzero()


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative values (torch.is_signed)."""
    return input.is_signed()


def is_conj(input: Tensor) -> bool:
    """Whether a conjugation is pending in PyTorch (torch.is_conj)."""
    return input.is_conj()


def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is returned unchanged (torch.conj)."""
    return input.conj()


def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view (torch.imag)."""
    return input.imag


def resolve_conj(input: Tensor) -> Tensor:
    """A copy of what PyTorch has a pending conjugation for; else the tensor itself (torch.resolve_conj)."""
    return input.resolve_conj()


def is_neg(input: Tensor) -> bool:
    """Whether a negation is pending in PyTorch (torch.is_neg)."""
    return input.is_neg()


def is_inference(input: Tensor) -> bool:
    """Whether inference mode made the tensor (torch.is_inference)."""
    return input.is_inference()


def resolve_neg(input: Tensor) -> Tensor:
    """A copy of what PyTorch has a pending negation for; else the tensor itself (torch.resolve_neg)."""
    return input.resolve_neg()


def get_device(input: Tensor) -> int:
    """The number of its GPU, -1 on the CPU (torch.get_device)."""
    return input.get_device()


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, *, axes: Any = None, out: Tensor | None = None) -> Tensor:
    """Sum products over the last dims of a and the first dims of b, or over two lists of dims (torch.tensordot).

    dims: a number, two lists of equal length, or a tensor of either. A tensor is read, which waits for the server.
    """
    dims = dims if axes is None else axes  # NumPy's name
    given = dims.tolist() if isinstance(dims, Tensor) else dims
    if isinstance(given, (list, tuple)):
        if len(given) != 2:
            raise GradwireTypeError(f"tensordot(): dims must be a number or two lists of dims, not {given!r}")
        first, second = ([one] if isinstance(one, int) else list(one) for one in given)
        if len(first) != len(second):
            raise refuse("both dimension lists should have same length")
        given = (*first, *second)
    made: Tensor = _call("tensordot", (a, b, given))
    return made if out is None else _into("tensordot", out, made, (a, b))


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sum of products over the labels that the output lacks, by Einstein's notation (torch.einsum).

    equation: such as "ij,jk->ik". Or tensors that alternate with lists of labels, numbers below 52 and `...`, and a
    last list for the output: `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Raises ValueError for a tensor without its list,
    and for another label.
    """
    if isinstance(equation, Tensor):
        given = (equation, *operands)
        if len(given) < 2:
            raise ValueError(
                "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                "subscripts list"
            )
        tensors = given[: len(given) // 2 * 2 : 2]
        equation = ",".join(map(_labels, given[1::2]))
        if len(given) % 2:
            equation += "->" + _labels(given[-1])
        operands = tensors
    made: Tensor = ops.einsum(equation, *operands)
    return made


def _labels(subscripts: Any) -> str:
    """A list's labels as letters: those of 0 to 25 are capitals, as PyTorch orders them."""
    found = []
    for each in subscripts:
        if each is Ellipsis:
            found.append("...")
        elif 0 <= each < len(_LETTERS):
            found.append(_LETTERS[each])
        else:
            raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
    return "".join(found)


def repeat_interleave(
    input: Any = None, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None, axis: Any = None
) -> Tensor:
    """Repeat each element, or each slice along `dim`, next to itself (torch.repeat_interleave).

    A single tensor holds the times: place i comes so often in the result. Raises RuntimeError if it is no vector, for
    negative times, and for another size of the result than `output_size`.
    """
    if input is not None and repeats is not None:
        return ops.repeat_interleave(input, repeats, dim, output_size=output_size, axis=axis)
    times = repeats if input is None else input
    if not isinstance(times, Tensor):
        raise GradwireTypeError("repeat_interleave() missing 1 required positional argument: 'repeats'")
    if times.ndim != 1:
        raise refuse("repeat_interleave only accept 1D vector as repeat")
    if times.dtype not in (dtypes.int32, dtypes.int64):
        kind = str(times.type()).rpartition(".")[2].removesuffix("Tensor")
        raise GradwireNotImplementedError(f"\"repeat_interleave_{times.device.type}\" not implemented for '{kind}'")
    places = ops.arange(len(times), dtype=times.dtype, device=times.device)
    return ops.repeat_interleave(places, times, output_size=output_size)


def set_flush_denormal(mode: bool, /) -> bool:
    """False: the server's processors keep denormal numbers (torch.set_flush_denormal)."""
    return False


def _parts(name: str, input: Tensor, sections: Any, *dim: int) -> Any:
    """Split a tensor. `sections` is the number of parts, a list of indices, or a tensor of either."""
    given = sections
    if isinstance(sections, Tensor):
        expected = f"{name} expected tensor_indices_or_sections to"
        if sections.dtype is not dtypes.int64:
            raise refuse(f"{expected} have dtype of long, but got {sections.dtype.title}")
        if sections.ndim > 1:
            found = f"a tensor with {sections.ndim} dims"
            raise refuse(f"{expected} be a zero-dimensional or one-dimensional tensor, but got {found}")
        given = sections.tolist()
    return _call(name, (input, given, *dim), (), "tuple")


def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: int | None = None
) -> Any:
    """Split into `sections` parts, the first ones longer by one if needed, or at `indices` (torch.tensor_split).

    Either may be a tensor. A tensor is read, which waits for the server.
    """
    given = [one for one in (indices_or_sections, indices, sections) if one is not None]
    if len(given) != 1:
        raise GradwireTypeError("tensor_split() takes one of `indices_or_sections`, `indices` and `sections`")
    return _parts("tensor_split", input, given[0], dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Split along the second dimension, or a vector along its only dimension (torch.hsplit)."""
    return _parts("hsplit", input, indices_or_sections)


def vsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Split along the first dimension (torch.vsplit)."""
    return _parts("vsplit", input, indices_or_sections)


def dsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Split along the third dimension (torch.dsplit)."""
    return _parts("dsplit", input, indices_or_sections)


def _each(name: str, tensors: tuple[Any, ...]) -> Any:
    """Apply an op to one tensor, or to each of several."""
    given = tensors[0] if len(tensors) == 1 else tensors
    if isinstance(given, Tensor):
        return _call(name, (given,))
    return tuple(_call(name, (one,)) for one in given)


def atleast_1d(*tensors: Any) -> Any:
    """Add dimensions up to at least one; several tensors give a tuple (torch.atleast_1d)."""
    return _each("atleast_1d", tensors)


def atleast_2d(*tensors: Any) -> Any:
    """Add dimensions up to at least two; several tensors give a tuple (torch.atleast_2d)."""
    return _each("atleast_2d", tensors)


def atleast_3d(*tensors: Any) -> Any:
    """Add dimensions up to at least three; several tensors give a tuple (torch.atleast_3d)."""
    return _each("atleast_3d", tensors)


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Indices of nonzero elements: a row per element, or a tuple of a vector per dimension (torch.nonzero).

    `out` gets the rows. Raises RuntimeError for `out` beside `as_tuple`, or one of another dtype than int64.
    """
    if out is None:
        return input.nonzero(as_tuple=as_tuple)
    if as_tuple:
        raise refuse("nonzero does not support the out kwarg when as_tuple is True")
    if out.dtype is not dtypes.int64:
        raise refuse(f"nonzero: Expected out tensor to have scalar type Long but got scalar type {out.dtype}")
    return _into("nonzero", out, input.nonzero())


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """`input` where the condition holds, `other` elsewhere (torch.where).

    The condition alone gives the indices where it holds, as nonzero(as_tuple=True). Raises TypeError if only one of
    `input` and `other` is given, or, with `out`, one is no tensor; RuntimeError for an `out` of another dtype.
    """
    if input is None and other is None and out is None:
        return condition.nonzero(as_tuple=True)
    if input is None or other is None:
        raise GradwireTypeError("where() takes a condition, or a condition with both `input` and `other`")
    if out is None:
        return _call("where", (condition, input, other))
    for place, (name, each) in enumerate((("input", input), ("other", other)), 2):
        if not isinstance(each, Tensor):
            raise GradwireTypeError(
                f"where(): argument '{name}' (position {place}) must be Tensor, not {type(each).__name__}"
            )
    made = _call("where", (condition, input, other))
    if isinstance(out, Tensor) and out.dtype is not made.dtype:
        raise refuse(f"Expected out type to be {made.dtype.title} but got {out.dtype.title}")
    return _into("where", out, made, (condition, input, other))


def typename(obj: object) -> str:
    """Name of an object's type; for a tensor the name that includes its dtype (torch.typename)."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    name = getattr(obj, "__qualname__", type(obj).__qualname__)
    module = getattr(obj, "__module__", None)
    return str(name) if module in (None, "builtins") else f"{module}.{name}"


def is_storage(obj: object, /) -> bool:
    """Whether it is the memory of a tensor (torch.is_storage)."""
    return isinstance(obj, UntypedStorage)


def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """The dtype of arithmetic on two tensors or numbers (torch.result_type)."""
    parts = sorted((_ranked(tensor1), _ranked(tensor2)), key=lambda part: part[0])
    (rank, weak), (other_rank, strong) = parts
    if rank == other_rank:
        return promote_types(weak, strong)
    if category(weak) <= category(strong):
        return strong
    return strong.to_complex() if category(weak) == COMPLEX and strong.is_floating_point else weak


def _ranked(value: Any) -> tuple[int, dtype]:
    """Rank and dtype of an operand: 2 for a tensor with dimensions, 1 for a 0-d tensor, 0 for a number."""
    if isinstance(value, Tensor):
        return (2 if value.ndim else 1), value.dtype
    default = dtypes.get_default_dtype()
    if isinstance(value, bool):
        return 0, dtypes.bool_
    if isinstance(value, int):
        return 0, dtypes.int64
    return 0, default.to_complex() if isinstance(value, complex) else default


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy that stays in the graph, with the input's strides or in a memory format (torch.clone)."""
    return input.clone(memory_format=memory_format)
