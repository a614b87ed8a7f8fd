"""Exchange: converts tensors from and to other libraries in this process, by DLPack on the CPU or to PyTorch.

A tensor's bytes are on a server, so every conversion copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._base.refused import refusal
from gradwire._functions.create import as_tensor, make_tensor
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import CPU, read_array


def asarray(
    obj: Any,
    *,
    dtype: dtypes.dtype | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Make a tensor of values as `as_tensor` does; with `copy` never `obj` itself (torch.asarray).

    The bytes of a buffer are elements of `dtype`. `requires_grad`: None keeps the history of `obj`, False detaches from
    it. Raises ValueError for `copy=False` of what must be copied.
    """
    source = obj
    if _is_capsule(obj):
        source = from_dlpack(obj)
    elif not isinstance(obj, (Tensor, np.ndarray, np.generic)) and (view := _bytes_of(obj)) is not None:
        source = frombuffer(view, dtype=dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype))
    made = as_tensor(source, dtype, device)
    if copy and made is obj:
        made = made.clone()
    if copy is False and made is not obj:
        raise _no_alias(obj, made)
    if requires_grad and not made.requires_grad:
        return (made.detach() if made is obj else made).requires_grad_()
    return made.detach() if requires_grad is False and made.requires_grad else made


def _no_alias(obj: Any, made: Tensor) -> Exception:
    """Why a tensor has no memory in common with what it was made of."""
    if isinstance(obj, Tensor) and obj.device != made.device:
        return GradwireValueError(f"can't alias tensor from device '{obj.device}' to '{made.device}'.")
    if isinstance(obj, Tensor):
        return GradwireValueError(f"can't alias tensor with dtype '{obj.dtype.title}' into dtype '{made.dtype.title}'.")
    if isinstance(obj, np.generic):
        return refuse("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. ")
    if isinstance(obj, np.ndarray) or _is_capsule(obj) or _bytes_of(obj) is not None:
        return GradwireValueError("can't alias: the values are copied to the server")
    return GradwireValueError("can't alias arbitrary sequence into a tensor.")


def _bytes_of(obj: Any) -> memoryview | None:
    """The bytes of an object with a buffer; None without one. Raises RuntimeError for one with gaps."""
    try:
        view = memoryview(obj)
    except TypeError:
        return None
    if not view.c_contiguous:
        raise refuse("could not retrieve buffer from object: it has gaps")
    return view


def _is_capsule(obj: Any) -> bool:
    return type(obj).__name__ == "PyCapsule"


class _Capsule:
    """What NumPy reads a capsule from: an object that gives it, of memory of the CPU."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Copy the values of any array that supports DLPack, or of a capsule, to a tensor (torch.from_dlpack).

    Raises TypeError for an object without DLPack, BufferError for GPU memory, ValueError for copy=False.
    """
    if copy is False:
        raise ValueError("from_dlpack(copy=False): the tensor lives on a server, so it cannot share memory")
    target_device = dtypes.device_name(device)
    if _is_capsule(ext_tensor):
        ext_tensor = _Capsule(ext_tensor)
    if isinstance(ext_tensor, Tensor):
        made: Tensor = ext_tensor.detach().to(device=target_device, copy=True)
        return made
    if not hasattr(ext_tensor, "__dlpack__") or not hasattr(ext_tensor, "__dlpack_device__"):
        raise GradwireTypeError(f"from_dlpack() takes an object with __dlpack__, not {type(ext_tensor).__name__}")
    if ext_tensor.__dlpack_device__()[0] != CPU:
        raise BufferError("from_dlpack() reads memory of the CPU only: copy the array there first")
    return make_tensor(np.from_dlpack(ext_tensor), device=target_device)


def frombuffer(
    buffer: Any, *, dtype: dtypes.dtype, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor of one dimension of a buffer's bytes, which are copied (torch.frombuffer). Raises ValueError."""
    kind = np.dtype("<u2") if dtype.numpy is None else dtype.numpy
    array = np.frombuffer(buffer, kind, count, offset)
    if dtype is dtypes.bfloat16:
        array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32)
    return make_tensor(array, dtype, requires_grad=requires_grad)


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: dtypes.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of one dimension, of the first `size` elements of a file, which are copied (torch.from_file).

    Raises NotImplementedError for `shared=True`, since the server does not map files of its clients. Raises
    RuntimeError if the file is too short, OSError if it cannot be read.
    """
    if shared:
        raise refusal("from_file with shared=True", "values are on the server, so their changes cannot reach the file")
    wanted = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    needed = size * wanted.itemsize
    with open(filename, "rb") as file:
        content = file.read(needed)
    if len(content) < needed:
        raise refuse(f"unable to map {needed} bytes of file <{filename}>: it has {len(content)} bytes")
    made = frombuffer(content, dtype=wanted) if content else make_tensor(np.empty(0), wanted)
    return made if device is None else made.to(device)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of a copy of the values in CPU memory (torch.utils.dlpack.to_dlpack)."""
    return tensor.__dlpack__()


def from_torch(tensor: Any) -> Tensor:
    """Make a leaf of a PyTorch tensor's values and dtype. It requires grad if the PyTorch tensor is a leaf that does.

    Raises ImportError without PyTorch, TypeError if it is not a dense PyTorch tensor or its dtype is unknown here.
    """
    torch = _torch("from_torch")
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        raise GradwireTypeError(f"from_torch() takes a dense tensor of PyTorch's, not {type(tensor).__name__}")
    dtype = dtypes.BY_NAME.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise GradwireTypeError(f"from_torch(): {tensor.dtype} does not exist here")
    values = tensor.detach().cpu().resolve_conj().resolve_neg()
    array = (values.float() if dtype is dtypes.bfloat16 else values).numpy()
    return make_tensor(array, dtype, requires_grad=bool(tensor.requires_grad and tensor.is_leaf))


def to_torch(tensor: Tensor) -> Any:
    """Copy a leaf's values and dtype to a PyTorch tensor on the CPU. It requires grad if the leaf does.

    Raises RuntimeError for a tensor with a history (use detach()), ImportError without PyTorch, TypeError if it is
    not a tensor.
    """
    torch = _torch("to_torch")
    if not isinstance(tensor, Tensor):
        raise GradwireTypeError(f"to_torch() takes a tensor, not {type(tensor).__name__}")
    if not tensor.is_leaf:
        raise refuse("to_torch() would lose the tensor's history. Use to_torch(tensor.detach()) instead.")
    made = torch.from_numpy(read_array(tensor)).to(getattr(torch, tensor.dtype.name))
    return made.requires_grad_(tensor.requires_grad)


def _torch(name: str) -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(f"{name}() needs PyTorch: pip install torch") from None
    return torch
