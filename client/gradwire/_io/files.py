"""save and load: store nested dicts, lists, numbers and tensors as a safetensors file, without pickle.

Names of PyTorch's checkpoints (`.pt`, `.pth`, …) and objects that safetensors cannot hold get PyTorch's own format
(`pytorch_writer`, `pytorch_reader`).

A tensor is stored under its path ("state.0.exp_avg"), so any safetensors reader sees a flat dict of tensors as
expected. Nesting, numbers, flags and shared tensors are JSON in the metadata. A file without this metadata is a dict
of its tensors. A file is read and checked completely before any tensor is made. It is written to a temporary file and
then moved into place, so a partial file is never visible.
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
from gradwire._functions.create import empty
from gradwire._functions.pickled import from_stored, stored_array
from gradwire._io.pytorch_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from gradwire._io.pytorch_reader import is_pytorch, read_pytorch
from gradwire._io.pytorch_writer import written
from gradwire._session.saved_files import read_file, write_file
from gradwire._tensor.ops import view_as_complex
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import Array

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

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


# Endings of names by which PyTorch programs call their checkpoints.
_PYTORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".tar", ".pkl", ".pickle")


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    on: str = "client",
) -> None:
    """Write an object to a path or binary file (torch.save).

    A path that ends in .pt, .pth, .bin, .ckpt, .tar, .pkl or .pickle gets PyTorch's format, which PyTorch's torch.load
    reads. Other files are safetensors: nested dicts, lists, tuples, numbers, strings and tensors, complex numbers as
    pairs. An object that safetensors cannot hold is stored in PyTorch's format, unless the path ends in .safetensors.

    With `on="server"` the file is on the server's disk, `f` is its name there, and no tensor data is transferred.

    An existing file is replaced only by a complete one. Raises PicklingError for an object that cannot be pickled. For
    a path that ends in .safetensors raises TypeError, naming the place of the object, and ImportError without the
    safetensors package. `pickle_module` and the underscored options have no effect.
    """
    if _is_on_server(on):
        save_on_server(obj, f)
        return
    path = "" if hasattr(f, "write") else os.fspath(f)
    content = written(obj, pickle_protocol) if str(path).endswith(_PYTORCH_ENDINGS) else _content_of(obj, str(path))
    if hasattr(f, "write"):
        f.write(content)
    else:
        replace_file(path, content)


def _content_of(obj: Any, path: str) -> bytes:
    """A safetensors file's content; of PyTorch's format if safetensors cannot hold the object or is not installed."""
    must = path.endswith(".safetensors")
    try:
        library = _library()
        writer = _Writer(_stored)
        tree = writer.encode_all(obj)
    except (GradwireTypeError, ImportError):
        if must:
            raise
        return written(obj)
    specs = {
        name: library.TensorSpec(dtype=dtype, shape=list(shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (array, dtype, shape) in writer.arrays.items()
    }
    return bytes(library.serialize(specs, {_METADATA: _described(tree)}))


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    on: str = "client",
    **pickle_load_args: Any,
) -> Any:
    """Read a file of `save` or of PyTorch's torch.save, or any safetensors file as a dict of tensors (torch.load).

    With `on="server"` `f` is the name of a file on the server's disk, and no tensor data is transferred.

    `map_location` is the device of the tensors; a dict or function maps the devices of a file of torch.save. By default
    safetensors are on the server's CPU, others where they were saved. With `weights_only` a file may hold tensors and
    plain data only and runs no code; without, it may hold any object, and code. `mmap` and arguments for pickle have no
    effect. Raises FileNotFoundError, EOFError for an empty file, RuntimeError for a truncated file or another format,
    UnpicklingError for what weights_only does not allow, TypeError for an unknown dtype, ImportError if safetensors are
    read without the safetensors package.
    """
    if _is_on_server(on):
        return load_on_server(f, map_location)
    name = str(getattr(f, "name", "the file")) if hasattr(f, "read") else str(os.fspath(f))
    content = bytes(f.read()) if hasattr(f, "read") else _content(name)
    if is_pytorch(content):
        return read_pytorch(content, name, map_location, weights_only is not False)
    library = _library()
    device = "cpu" if map_location is None or callable(map_location) else dtypes.device_name(map_location)
    arrays, metadata = _parse(library, content, name)
    return _read(_Reader(arrays, device, name), metadata)


def _is_on_server(on: str) -> bool:
    if on not in ("client", "server"):
        raise GradwireValueError(f"a file is on the 'client' or on the 'server', not on {on!r}")
    return on == "server"


def _described(tree: Any) -> str:
    return json.dumps({"format": _FORMAT, "tree": tree}, allow_nan=False)


def _read(reader: _Reader, metadata: Mapping[str, str]) -> Any:
    """Check a file's description and return the value. Raises RuntimeError for a damaged description."""
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


def save_on_server(obj: Any, name: Any) -> None:
    """Have the server write a file on its disk."""
    writer = _Writer(lambda tensor: tensor)
    tree = writer.encode_all(obj)
    write_file(_name(name), writer.arrays, {_METADATA: _described(tree)})


def load_on_server(name: Any, map_location: Any) -> Any:
    """Have the server read tensors from a file on its disk."""
    device = "cpu" if map_location is None else dtypes.device_name(map_location)
    tensors, metadata = read_file(_name(name), device)
    return _read(_ServerReader({key: (each, each.dtype) for key, each in tensors.items()}, device, name), metadata)


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


def replace_file(path: str, content: bytes) -> None:
    """Write a temporary file in the same folder and move it to `path`."""
    handle, beside = tempfile.mkstemp(prefix=".gradwire-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp gives access to the owner only; a saved file gets the process's usual permissions.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


class _Writer:
    """Converts a nested value to JSON and collects its tensors by name."""

    def __init__(self, stored: Callable[[Tensor], Any]) -> None:
        self.stored = stored
        self.arrays: dict[str, Any] = {}
        self.names: dict[int, str] = {}

    def encode_all(self, value: Any) -> Any:
        """Encode the whole value. Raises TypeError if a part of it cannot be saved."""
        try:
            return self.encode(value, "")
        except RecursionError:
            raise GradwireTypeError("save(): the object is nested too deep, or contains itself") from None

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
        description: dict[str, Any] = {"tensor": name}
        if value.is_complex():
            description["complex"] = True
        if value._is_parameter():
            description["parameter"] = True
        if value.requires_grad:
            description["requires_grad"] = True
        return description


def _advice(value: Any) -> str:
    """Advice on what to save instead of an object; empty if there is none."""
    if callable(getattr(value, "state_dict", None)):
        return f": save its state_dict(), and give that to load_state_dict() of a new {type(value).__name__}"
    return ": save gradwire.from_numpy() of it" if isinstance(value, np.ndarray) else ""


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _stored(value: Tensor) -> tuple[Array, str, tuple[int, ...]]:
    """A tensor's array with its dtype and shape in the file; complex numbers become pairs."""
    array = stored_array(value)
    if value.is_complex():
        real = array.view(array.real.dtype).reshape(*value.shape, 2)
        return real, real.dtype.name, tuple(real.shape)
    return array, value.dtype.name, tuple(value.shape)


def _parse(library: Any, content: bytes, name: str) -> tuple[dict[str, tuple[Array, dtypes.dtype]], dict[str, str]]:
    """Arrays of a file with their dtypes, and its metadata.

    Raises EOFError for an empty file, RuntimeError for a damaged file, TypeError for an unknown dtype.
    """
    if not content:
        raise EOFError(f"Ran out of input: {name} is empty")
    try:
        found = library.deserialize(content)
    except library.SafetensorError as problem:
        raise GradwireRuntimeError(
            f"{name} is no file of torch.save and no complete safetensors file: {problem}."
        ) from None
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
    """Converts a file's content to values."""

    def __init__(self, arrays: dict[str, tuple[Any, dtypes.dtype]], device: str, name: str) -> None:
        self.arrays = arrays
        self.device = device
        self.name = name
        self.made: dict[str, Tensor] = {}

    def check(self, tree: Any) -> None:
        """Raise an error if the description does not match the file's tensors. Makes no tensor."""
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
        return from_stored(array, dtype, self.device)


class _ServerReader(_Reader):
    """Reader for tensors that the server already made."""

    def tensor(self, name: str, is_complex: bool) -> Tensor:
        """The tensor of that name; of complex numbers where pairs stand for them."""
        made: Tensor = self.arrays[name][0]
        if is_complex and not made.numel():  # an empty tensor cannot be viewed as complex
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
