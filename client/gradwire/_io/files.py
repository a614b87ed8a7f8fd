"""save and load: nested dicts, lists, numbers and tensors as a safetensors file, on the client's disk. No pickle.

Tensors lie in the file under their path ("state.0.exp_avg"), so that a flat dict of tensors is what every reader of
safetensors expects. What else there is to know (nesting, numbers, flags, tensors that are one) is JSON in the
metadata; a file without it is a dict of its tensors. A file is read and checked as a whole before any tensor is made,
and written beside its place and then moved there: nothing is ever half there.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireRuntimeError, GradwireTypeError, GradwireValueError
from gradwire._base.modes import no_grad
from gradwire._functions.create import empty, make_tensor, to_bfloat16
from gradwire._session.saved_files import read_file, write_file
from gradwire._tensor.ops import view_as_complex
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import Array, read_array

_METADATA = "gradwire"
_FORMAT = 1
_CODES = {
    "F64": dtypes.float64,
    "F32": dtypes.float32,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "I64": dtypes.int64,
    "I32": dtypes.int32,
    "I16": dtypes.int16,
    "I8": dtypes.int8,
    "U64": dtypes.uint64,
    "U32": dtypes.uint32,
    "U16": dtypes.uint16,
    "U8": dtypes.uint8,
    "BOOL": dtypes.bool_,
    "C64": dtypes.complex64,
}


def save(obj: Any, f: Any, *, on: str = "client", **options: Any) -> None:
    """Write nested dicts, lists, tuples, numbers, strings and tensors to a path or binary file (torch.save).

    With `on="server"` the file is on the server's disk, `f` is its name there, and no tensor travels.

    The file is in the safetensors format, whatever its name; complex128 is kept as pairs of float64. Raises TypeError
    for any other object, naming where it is, and ImportError without the safetensors package. A file that exists is
    replaced only by a whole one.
    """
    if options:
        raise GradwireTypeError(f"save() takes an object and a file, not {', '.join(options)}: it pickles nothing")
    if _is_on_server(on):
        save_there(obj, f)
        return
    library = _library()
    writer = _Writer(_stored)
    tree = writer.encode_all(obj)
    specs = {
        name: library.TensorSpec(dtype=dtype, shape=list(shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (array, dtype, shape) in writer.arrays.items()
    }
    content = bytes(library.serialize(specs, {_METADATA: _described(tree)}))
    if hasattr(f, "write"):
        f.write(content)
    else:
        _replace(os.fspath(f), content)


def load(
    f: Any, map_location: Any = None, *, weights_only: bool = True, mmap: bool | None = None, on: str = "client"
) -> Any:
    """What `save` wrote to a path or binary file, or the dict of tensors of any safetensors file (torch.load).

    With `on="server"` `f` is the name of a file on the server's disk, and no tensor travels.

    `map_location` is the device of the tensors, the server's memory if left out. Raises FileNotFoundError, EOFError
    for an empty file, RuntimeError for one that is cut short or no safetensors file, TypeError for a dtype that does
    not exist here, ImportError without the safetensors package. `weights_only` and `mmap` change nothing.
    """
    if _is_on_server(on):
        return load_there(f, map_location)
    library = _library()
    name = str(getattr(f, "name", "the file")) if hasattr(f, "read") else os.fspath(f)
    content = f.read() if hasattr(f, "read") else _content(name)
    device = "cpu" if map_location is None else dtypes.device_name(map_location)
    arrays, metadata = _parse(library, bytes(content), name)
    return _read(_Reader(arrays, device, name), metadata)


def _is_on_server(on: str) -> bool:
    if on not in ("client", "server"):
        raise GradwireValueError(f"a file is on the 'client' or on the 'server', not on {on!r}")
    return on == "server"


def _described(tree: Any) -> str:
    return json.dumps({"format": _FORMAT, "tree": tree}, allow_nan=False)


def _read(reader: _Reader, metadata: Mapping[str, str]) -> Any:
    """The value that a file describes, all of it checked first."""
    name = reader.name
    if _METADATA not in metadata:
        return {key: reader.tensor(key, False) for key in reader.arrays}
    try:
        described = json.loads(metadata[_METADATA])
        tree = described["tree"]
        if described["format"] != _FORMAT:
            raise GradwireRuntimeError(f"{name} is of format {described['format']}, this release reads {_FORMAT}")
        reader.check(tree)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise GradwireRuntimeError(f"{name}: its description is damaged: {problem}") from None
    return reader.decode(tree)


def save_there(obj: Any, name: Any) -> None:
    """Have the server write a file on its own disk."""
    writer = _Writer(lambda tensor: tensor)
    tree = writer.encode_all(obj)
    write_file(_name(name), writer.arrays, {_METADATA: _described(tree)})


def load_there(name: Any, map_location: Any) -> Any:
    """Have the server make tensors of a file on its own disk."""
    device = "cpu" if map_location is None else dtypes.device_name(map_location)
    tensors, metadata = read_file(_name(name), device)
    return _read(_ThereReader({key: (each, each.dtype) for key, each in tensors.items()}, device, name), metadata)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise GradwireTypeError(f"a file on the server is known by its name, a str, not by a {type(given).__name__}")
    return given


def _library() -> Any:
    try:
        import safetensors
    except ImportError:
        raise ImportError(
            "gradwire.save and gradwire.load need the safetensors package: pip install 'gradwire[files]'"
        ) from None
    return safetensors


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _replace(path: str, content: bytes) -> None:
    """Write a file beside its place and move it there."""
    handle, beside = tempfile.mkstemp(prefix=".gradwire-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp lets only the owner read; a saved file is as any other that the process makes.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


class _Writer:
    """Turns a nested value into JSON, and collects its tensors by name."""

    def __init__(self, stored: Callable[[Tensor], Any]) -> None:
        self.stored = stored
        self.arrays: dict[str, Any] = {}
        self.names: dict[int, str] = {}

    def encode_all(self, value: Any) -> Any:
        """The whole value. Raises TypeError for what cannot be saved."""
        try:
            return self.encode(value, "")
        except RecursionError:
            raise GradwireTypeError("save(): the object is nested too deep, or holds itself") from None

    def encode(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, path or "tensor")
        if isinstance(value, dict):
            kind = "ordered" if isinstance(value, OrderedDict) else "dict"
            items = [[self.encode_key(key, path), self.encode(item, _join(path, key))] for key, item in value.items()]
            return {kind: items}
        if isinstance(value, dtypes.Size):
            return {"size": list(value)}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.encode(item, _join(path, at)) for at, item in enumerate(value)]}
        return self._plain(value, path)

    def encode_key(self, key: Any, path: str) -> Any:
        if isinstance(key, Tensor) or type(key) not in (str, int, float, bool, type(None)):
            raise GradwireTypeError(
                f"save(): a key of {path or 'the dict'} is a {type(key).__name__}, not a str or number"
            )
        return self._plain(key, path)

    def _plain(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or type(value) in (bool, int, str):
            return {"value": value}
        if isinstance(value, float):
            return {"value": value} if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, complex):
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, dtypes.dtype):
            return {"dtype": value.name}
        if isinstance(value, dtypes.device):
            return {"device": str(value)}
        raise GradwireTypeError(
            f"save(): {path or 'the object'} is a {type(value).__name__}; what can be saved are tensors, numbers, "
            f"strings, None, dtypes, devices, and dicts, lists and tuples of these{_advice(value)}"
        )

    def _tensor(self, value: Tensor, path: str) -> Any:
        name = self.names.get(id(value))
        if name is None:
            name = path
            while name in self.arrays:
                name += "_"
            self.names[id(value)] = name
            self.arrays[name] = self.stored(value)
        told: dict[str, Any] = {"tensor": name}
        if value.is_complex():
            told["complex"] = True
        if value._is_parameter():
            told["parameter"] = True
        if value.requires_grad:
            told["requires_grad"] = True
        return told


def _advice(value: Any) -> str:
    """What to save instead of an object of a kind that people save."""
    if callable(getattr(value, "state_dict", None)):
        return f": save its state_dict(), and give that to load_state_dict() of a new {type(value).__name__}"
    return ": save gradwire.from_numpy() of it" if isinstance(value, np.ndarray) else ""


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _stored(value: Tensor) -> tuple[Array, str, tuple[int, ...]]:
    """A tensor's bytes, with dtype and shape as the file names them."""
    array = np.ascontiguousarray(read_array(value)).reshape(value.shape)
    if value.is_complex():
        real = array.view(array.real.dtype).reshape(*value.shape, 2)
        return real, real.dtype.name, tuple(real.shape)
    if value.dtype is dtypes.bfloat16:
        return np.ascontiguousarray(to_bfloat16(array)), "bfloat16", tuple(value.shape)
    return array, value.dtype.name, tuple(value.shape)


def _parse(library: Any, content: bytes, name: str) -> tuple[dict[str, tuple[Array, dtypes.dtype]], dict[str, str]]:
    """The arrays of a file with their dtypes, and its metadata, all checked."""
    if not content:
        raise EOFError(f"Ran out of input: {name} is empty")
    try:
        found = library.deserialize(content)
    except library.SafetensorError as problem:
        hint = ""
        if content[:2] in (b"PK", b"\x80\x02"):
            hint = " It looks like a file of torch.save: write it anew with safetensors.torch.save_file"
        raise GradwireRuntimeError(f"{name} is no whole safetensors file: {problem}.{hint}") from None
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
    arrays = {}
    for key, described in found:
        dtype = _CODES.get(described["dtype"])
        if dtype is None:
            raise GradwireTypeError(f"{name}: {key!r} is of the dtype {described['dtype']}, which does not exist here")
        kind = np.dtype("<u2") if dtype.numpy is None else dtype.numpy
        arrays[key] = (np.frombuffer(described["data"], kind).reshape(described["shape"]), dtype)
    return arrays, metadata


class _Reader:
    """Turns what the file holds into values."""

    def __init__(self, arrays: dict[str, tuple[Any, dtypes.dtype]], device: str, name: str) -> None:
        self.arrays = arrays
        self.device = device
        self.name = name
        self.made: dict[str, Tensor] = {}

    def check(self, tree: Any) -> None:
        """Raise for a description that does not fit the file, before anything is made."""
        if "tensor" in tree:
            array, dtype = self.arrays[tree["tensor"]]
            if tree.get("complex") and (dtype not in (dtypes.float32, dtypes.float64) or array.shape[-1:] != (2,)):
                raise ValueError(f"{tree['tensor']!r} holds no complex numbers")
            if tree.get("requires_grad") and not (dtype.is_floating_point or tree.get("complex")):
                raise ValueError(f"{tree['tensor']!r} is of {dtype}, which has no gradients")
            return
        ((kind, held),) = tree.items()
        if kind in ("dict", "ordered"):
            for key, item in held:
                self.check(item)
                if "tensor" in key:
                    raise ValueError("a key of a dict is a tensor")
                hash(self.decode(key))
        elif kind in ("list", "tuple"):
            for item in held:
                self.check(item)
        else:
            self.decode(tree)

    def decode(self, tree: Any) -> Any:
        if "tensor" in tree:
            return self._described(tree)
        ((kind, held),) = tree.items()
        if kind in ("dict", "ordered"):
            made: dict[Any, Any] = OrderedDict() if kind == "ordered" else {}
            made.update((self.decode(key), self.decode(item)) for key, item in held)
            return made
        if kind in ("list", "tuple"):
            items = [self.decode(item) for item in held]
            return items if kind == "list" else tuple(items)
        if kind == "complex":
            return complex(float(held[0]), float(held[1]))
        return _PLAIN[kind](held)

    def _described(self, tree: Any) -> Tensor:
        name = tree["tensor"]
        if name not in self.made:
            made = self.tensor(name, bool(tree.get("complex")))
            if tree.get("parameter"):
                from gradwire.nn._parameter import Parameter

                made = Parameter(made, bool(tree.get("requires_grad")))
            elif tree.get("requires_grad"):
                made.requires_grad_()
            self.made[name] = made
        return self.made[name]

    def tensor(self, name: str, is_complex: bool) -> Tensor:
        """The tensor of that name; of complex numbers where pairs stand for them."""
        array, dtype = self.arrays[name]
        if is_complex:
            dtype = dtype.to_complex()
            assert dtype.numpy is not None
            array = array.view(dtype.numpy).reshape(array.shape[:-1])
        elif dtype is dtypes.bfloat16:
            array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32).reshape(array.shape)
        return make_tensor(array, dtype, self.device)


class _ThereReader(_Reader):
    """The same for tensors that the server has made already."""

    def tensor(self, name: str, is_complex: bool) -> Tensor:
        """The tensor of that name; of complex numbers where pairs stand for them."""
        made: Tensor = self.arrays[name][0]
        if is_complex and not made.numel():  # nothing that could be seen as complex numbers
            made = empty(made.shape[:-1], dtype=made.dtype.to_complex(), device=self.device)
        elif is_complex:
            with no_grad():
                made = view_as_complex(made).clone()
        return made


_PLAIN: dict[str, Any] = {
    "value": lambda held: held,
    "float": float,
    "size": dtypes.Size,
    "dtype": lambda held: dtypes.BY_NAME[held],
    "device": dtypes.device,
}
