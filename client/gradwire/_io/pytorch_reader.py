"""Files of torch.save: a zip archive of a pickle and the storages' bytes, or the older format, one after the other.

With weights_only the pickle may name only plain data and what the program declared safe, so it runs no code.
"""

from __future__ import annotations

import importlib
import io
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireNotImplementedError, GradwireRuntimeError
from gradwire._io.pytorch_globals import LoadedStorage, StorageType, safe_global

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_START = pickle.dumps(_LEGACY_MAGIC, protocol=2)
# Names of modules in pickles of protocol 2.
_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_REBUILDS_REFUSED = (
    "_rebuild_sparse_tensor", "_rebuild_qtensor", "_rebuild_nested_tensor", "_rebuild_sparse_csr_tensor",
    "_rebuild_meta_tensor_no_storage", "_rebuild_wrapper_subclass",
)  # fmt: skip


def is_pytorch(content: bytes) -> bool:
    """Whether a file begins as torch.save's do."""
    return content[:4] == b"PK\x03\x04" or content.startswith(_LEGACY_START)


class _Unpickler(pickle.Unpickler):
    """Reads a pickle whose persistent ids are storages."""

    def __init__(self, content: Any, storage: Callable[..., LoadedStorage], weights_only: bool) -> None:
        super().__init__(content, encoding="utf-8")
        self._storage = storage
        self._weights_only = weights_only

    def find_class(self, module: str, name: str) -> Any:
        """What a name means. Raises UnpicklingError for a name that is not allowed, or does not exist here."""
        module = _PYTHON_2.get(module, module)
        found = safe_global(module, name)
        if found is not None:
            return found
        if module == "torch._utils" and name in _REBUILDS_REFUSED:
            raise GradwireNotImplementedError(
                f"gradwire cannot load this file: it has a tensor that is sparse, quantized, nested or without values "
                f"({module}.{name})"
            )
        if self._weights_only:
            raise pickle.UnpicklingError(
                f"Weights only load failed: the file names {module}.{name}, which is neither a tensor nor plain data, "
                f"and could run code. If you trust its source, call torch.serialization.add_safe_globals([{name}]), "
                "or load it with weights_only=False."
            )
        if module.partition(".")[0] == "torch":
            module = f"gradwire{module.removeprefix('torch')}"
        return _attribute(module, name)

    def persistent_load(self, pid: Any) -> Any:
        """A storage of the file."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], StorageType):
            raise pickle.UnpicklingError(f"the file names something that is no storage: {str(pid)[:80]}")
        return self._storage(*pid[1:])


def _attribute(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as missing:
        raise pickle.UnpicklingError(f"the file names {module}.{name}, which does not exist here: {missing}") from None
    return found


def read_pytorch(content: bytes, name: str, map_location: Any, weights_only: bool) -> Any:
    """The value of a file of torch.save.

    `map_location` is a device, a dict from the file's devices to others, a function of a storage and its device, or
    None for the file's devices. Raises UnpicklingError for what weights_only does not allow, RuntimeError for a
    damaged file, NotImplementedError for an archive of torch.jit or tensors that gradwire lacks.
    """
    read = _read_archive if content[:2] == b"PK" else _read_legacy
    try:
        return read(content, name, map_location, weights_only)
    except pickle.UnpicklingError as problem:
        raise pickle.UnpicklingError(f"{name}: {problem}") from None
    except (zipfile.BadZipFile, KeyError, EOFError, struct.error, IndexError) as problem:
        raise GradwireRuntimeError(f"{name} is not a complete file of torch.save: {problem}") from None


def _device(location: str, map_location: Any) -> str:
    """Where a storage goes that was saved on a device."""
    if isinstance(map_location, Mapping):
        map_location = map_location.get(location)
    elif callable(map_location) and not isinstance(map_location, dtypes.device):
        made = map_location(LoadedStorage(b"", None, "cpu"), location)
        map_location = getattr(made, "device", made)
    return dtypes.device_name(location if map_location is None else map_location)


def _read_archive(content: bytes, name: str, map_location: Any, weights_only: bool) -> Any:
    archive = zipfile.ZipFile(io.BytesIO(content))
    pickles = [each for each in archive.namelist() if each.endswith("/data.pkl") or each == "data.pkl"]
    if any(each.rpartition("/")[2] == "constants.pkl" for each in archive.namelist()):
        raise GradwireNotImplementedError(f"gradwire cannot load {name}: it is an archive of torch.jit.save")
    if len(pickles) != 1:
        raise GradwireRuntimeError(f"{name} is a zip archive, but not one of torch.save: it has no data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = archive.read(f"{folder}byteorder").decode() if f"{folder}byteorder" in archive.namelist() else "little"
    made: dict[str, LoadedStorage] = {}

    def storage(kind: StorageType, key: str, location: str, count: int, *rest: Any) -> LoadedStorage:
        if key not in made:
            data = archive.read(f"{folder}data/{key}")
            _check_length(kind, data, count, name)
            made[key] = LoadedStorage(_little(data, kind, order), kind.dtype, _device(location, map_location))
        return made[key]

    return _Unpickler(io.BytesIO(archive.read(pickles[0])), storage, weights_only).load()


def _check_length(kind: StorageType, data: bytes, count: int, name: str) -> None:
    if len(data) != count * (1 if kind.dtype is None else kind.dtype.itemsize):
        raise GradwireRuntimeError(f"{name} is damaged: a storage of {count} elements has {len(data)} bytes")


def _little(data: bytes, kind: StorageType, order: str) -> bytes:
    """The bytes in little-endian order."""
    if order != "big" or kind.dtype is None:
        return data
    half = kind.dtype.itemsize // (2 if kind.dtype.is_complex else 1)
    return np.frombuffer(data, f">u{half}").astype(f"<u{half}").tobytes()


class _Anything:
    """Stands for every object in the first reading of an old file, which only looks for storages."""

    def __init__(self, *args: Any) -> None:
        pass

    def ignore(self, *args: Any) -> None:
        """Take the rest of the object."""

    __setstate__ = __setitem__ = append = extend = add = ignore


class _Survey(_Unpickler):
    """Finds the storages of a pickle without making anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """The types of storages; for every other name a class that takes any arguments."""
        found = safe_global(_PYTHON_2.get(module, module), name)
        return found if isinstance(found, StorageType) else _Anything


def _read_legacy(content: bytes, name: str, map_location: Any, weights_only: bool) -> Any:
    """Read the format before PyTorch 1.6. The storages' bytes follow their pickle, so it is read twice."""
    stream = io.BytesIO(content)
    found: dict[str, tuple[StorageType, str]] = {}
    made: dict[str, LoadedStorage] = {}

    def survey(kind: StorageType, key: str, location: str, count: int, view: Any = None) -> Any:
        if view is not None:
            raise GradwireRuntimeError(f"{name} has views of storages, which PyTorch before 0.4 wrote: save it anew")
        found[key] = (kind, location)
        return None

    def storage(kind: StorageType, key: str, *rest: Any) -> LoadedStorage:
        return made[key]

    for _ in range(3):  # magic number, version of the format, facts of the machine
        _Survey(stream, survey, True).load()
    start = stream.tell()
    _Survey(stream, survey, True).load()
    for key in _Unpickler(stream, storage, True).load():
        kind, location = found[key]
        (count,) = struct.unpack("<q", stream.read(8))
        data = stream.read(count * (1 if kind.dtype is None else kind.dtype.itemsize))
        _check_length(kind, data, count, name)
        made[key] = LoadedStorage(data, kind.dtype, _device(location, map_location))
    stream.seek(start)
    return _Unpickler(stream, storage, weights_only).load()
