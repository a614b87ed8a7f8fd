"""Safetensors heads: as the library reads them, and read back as untrusted input."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from gradwire_engine.core import dtypes
from gradwire_server.common import safetensors
from gradwire_server.common.errors import Refusal

ARRAYS = {
    "half": (dtypes.bfloat16, (3,)),
    "flag": (dtypes.bool_, ()),
    "w": (dtypes.float64, (2, 3)),
    "z": (dtypes.complex128, (2,)),
    "empty": (dtypes.int32, (0, 4)),
}
MOST = 1 << 16


def _bytes_of(arrays: dict) -> int:
    return sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in arrays.values())


@pytest.fixture
def file(tmp_path: Path):
    def write(raw: bytes):
        path = tmp_path / "file.safetensors"
        path.write_bytes(raw)
        return path.open("rb")

    return write


def _headed(told: object, data: bytes = b"") -> bytes:
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def test_a_head_read_back_names_every_tensor_in_the_order_of_its_bytes(file) -> None:
    head, order = safetensors.head_of(ARRAYS, {"made": "today"})
    entries, metadata, crc = safetensors.read_head(file(head + bytes(_bytes_of(ARRAYS))), "f", MOST)
    assert [entry.name for entry in entries if entry.nbytes] == [name for name in order if name != "empty"]
    found = {entry.name: (entry.dtype, entry.shape) for entry in entries}
    assert found == {**ARRAYS, "z": (dtypes.float64, (2, 2))}
    assert metadata == {safetensors.CRC: "0" * 8, "made": "today"}
    assert crc == zlib.crc32(head)


def test_data_are_aligned_and_the_head_is_a_multiple_of_eight_bytes() -> None:
    head, order = safetensors.head_of(ARRAYS, {})
    assert len(head) % 8 == 0
    told = json.loads(head[8:])
    for name in order:
        dtype = ARRAYS[name][0]
        assert told[name]["data_offsets"][0] % dtypes.real_part(dtype).itemsize == 0


def test_the_checksum_of_the_head_is_that_with_zeros_in_its_place(file) -> None:
    head, _ = safetensors.head_of(ARRAYS, {})
    written = head.replace(b'"00000000"', b'"1234abcd"', 1)
    _, metadata, crc = safetensors.read_head(file(written + bytes(_bytes_of(ARRAYS))), "f", MOST)
    assert metadata[safetensors.CRC] == "1234abcd"
    assert crc == zlib.crc32(head)


def test_the_library_reads_what_is_written() -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], np.int16)}
    head, order = safetensors.head_of({name: (array.dtype, array.shape) for name, array in arrays.items()}, {})
    found = library.load(head + b"".join(arrays[name].tobytes() for name in order))
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "nothing": b"",
    "a cut length": b"\x01\x02",
    "a length beyond the file": struct.pack("<Q", 1 << 40),
    "no json": _headed(b"{{{"),
    "a list": _headed([1]),
    "metadata that are no texts": _headed({"__metadata__": {"a": 1}}),
    "a lone surrogate in metadata": _headed(b'{"__metadata__": {"a": "\\ud800"}}'),
    "a lone surrogate in a name": _headed(
        b'{"\\ud800": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}', bytes(4)
    ),
    "no offsets": _headed({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "three offsets": _headed({"a": {**ONE, "data_offsets": [0, 4, 8]}}, bytes(8)),
    "a negative size": _headed({"a": {**ONE, "shape": [-2]}}, bytes(8)),
    "a size that is true": _headed({"a": {**ONE, "shape": [True, 2]}}, bytes(8)),
    "a fraction": _headed({"a": {**ONE, "shape": [2.0]}}, bytes(8)),
    "too many dimensions": _headed({"a": {**ONE, "shape": [1] * 65}}, bytes(8)),
    "sizes beyond numpy's": _headed({"a": {**ONE, "shape": [0, 1 << 40, 1 << 40], "data_offsets": [0, 0]}}),
    "bytes that the shape does not fill": _headed({"a": {**ONE, "shape": [3]}}, bytes(8)),
    "a gap": _headed({"a": ONE, "b": {**ONE, "data_offsets": [12, 20]}}, bytes(20)),
    "an overlap": _headed({"a": ONE, "b": {**ONE, "data_offsets": [4, 12]}}, bytes(12)),
    "bytes at the end": _headed({"a": ONE}, bytes(9)),
    "bytes that are missing": _headed({"a": ONE}, bytes(7)),
    "nested too deep": _headed(b"[" * 20_000),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_head_is_refused_with_the_files_name(what: str, file) -> None:
    with pytest.raises(Refusal, match="the file 'f' is damaged") as refusal:
        safetensors.read_head(file(DAMAGED[what]), "f", MOST)
    assert refusal.value.reason == "SNAPSHOT_DAMAGED"
    assert refusal.value.metadata == {"file": "f"}


def test_an_unknown_dtype_is_refused_with_the_tensors_name(file) -> None:
    with pytest.raises(Refusal, match="'a' is of the dtype 'F8_E4M3'") as refusal:
        safetensors.read_head(file(_headed({"a": {**ONE, "dtype": "F8_E4M3"}}, bytes(8))), "f", MOST)
    assert refusal.value.reason == "DTYPE"


def test_a_head_beyond_the_cap_is_refused_before_it_is_read(file) -> None:
    opened = file(_headed({"a": ONE}, bytes(8)))
    with pytest.raises(Refusal, match="and 10 are the cap") as refusal:
        safetensors.read_head(opened, "f", 10)
    assert opened.tell() == 8
    assert refusal.value.reason == "MESSAGE_TOO_LARGE"
